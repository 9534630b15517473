import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { createSourceReceiver, type ReceivedSource } from '../../../pipelines/deployments/receive-source.ts';
import { createSourceStore } from '../../../pipelines/deployments/source-store.ts';
import { folderForSuite } from '../../folders.ts';
import { isLinuxRoot } from '../../house/prerequisites.ts';
import { deferred } from '../../infra/deferred.ts';
import { mountDisk } from '../../infra/full-disk.ts';
import { until } from '../../infra/until.ts';

const folder = folderForSuite();
const formerFolder = process.env.TMPDIR;
const mebibyte = 1024 ** 2;

beforeAll(() => {
  process.env.TMPDIR = folder;
});
afterAll(() => {
  if (formerFolder === undefined) delete process.env.TMPDIR;
  else process.env.TMPDIR = formerFolder;
});

const listFiles = () =>
  readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.gz'));
/** A body that sends one chunk of `bytes`, and ends when `rest` resolves. */
const stalled = (bytes: number, rest: Promise<void>) =>
  Readable.from(
    (async function* () {
      yield Buffer.alloc(bytes);
      await rest;
    })(),
  );
const of = (uploadId: string, organizationId = 'one') => ({ uploadId, organizationId });
const unused = async () => expect.unreachable();

it('receives a body in a file that exists until the work is done', async () => {
  const receiver = createSourceReceiver({ deploymentsMaxSourceBytes: mebibyte });
  let received: ReceivedSource | undefined;
  await receiver.receive(of('a'), Readable.from([Buffer.from('so'), Buffer.from('urce')]), async (source) => {
    received = source;
    expect(readFileSync(source.path, 'utf8')).toBe('source');
  });
  expect(received).toMatchObject({ bytes: 6, sha256: expect.stringMatching(/^[0-9a-f]{64}$/) });
  expect(listFiles()).toEqual([]);
  expect(readdirSync(folder)).toEqual([]);
});

it('has one receiver for each upload: the last', async () => {
  const receiver = createSourceReceiver({ deploymentsMaxSourceBytes: mebibyte });
  const rest = deferred();
  const attempts = Array.from({ length: 40 }, () =>
    receiver.receive(of('a'), stalled(1_000, rest.promise), async () => {}),
  );
  const results = Promise.allSettled(attempts);
  await until('one file', () => listFiles().length === 1);
  rest.resolve();
  const refused = (await results).filter(({ status }) => status === 'rejected');
  expect(refused).toHaveLength(39);
  expect(refused[0]).toMatchObject({ reason: { code: 'UPLOAD_LINK_INVALID' } });
  await attempts.at(-1);
});

it('limits the bytes of all uploads together, and those of each organisation', async () => {
  const receiver = createSourceReceiver({ deploymentsMaxSourceBytes: mebibyte });
  const rest = deferred();
  const fill = (organizationId: string) =>
    Array.from({ length: 4 }, (_, index) =>
      receiver.receive(
        of(`${organizationId} ${index}`, organizationId),
        stalled(mebibyte, rest.promise),
        async () => {},
      ),
    );
  const receiveMore = (organizationId: string, bytes: number) =>
    receiver.receive(of('more', organizationId), Readable.from([Buffer.alloc(bytes)]), async () => {});
  const overloaded = { code: 'OVERLOADED', class: 'transient' };
  const full = fill('one');
  await until('four files', () => listFiles().length === 4);
  await expect(receiveMore('one', 1)).rejects.toMatchObject(overloaded);
  await receiveMore('other', mebibyte);
  full.push(...fill('other'));
  await until('eight files', () => listFiles().length === 8);
  await expect(receiveMore('third', 1)).rejects.toMatchObject(overloaded);
  rest.resolve();
  await Promise.all(full);
  for (const organizationId of ['one', 'third']) await receiveMore(organizationId, mebibyte);
});

it.runIf(isLinuxRoot('a full disk'))(
  'refuses a body for which the disk has no space, and accepts it later',
  async () => {
    const disk = mountDisk(1);
    process.env.TMPDIR = disk.folder;
    onTestFinished(() => {
      process.env.TMPDIR = folder;
      disk.remove();
    });
    const receiver = createSourceReceiver({ deploymentsMaxSourceBytes: 4 * mebibyte });
    const receive = (bytes: number) => receiver.receive(of('a'), Readable.from([Buffer.alloc(bytes)]), async () => {});
    const refused = { code: 'SOURCE_NOT_STORED', status: 503, class: 'transient' };
    await expect(receive(2 * mebibyte)).rejects.toMatchObject(refused);
    await receive(mebibyte / 2);
    disk.fill();
    await expect(receive(1)).rejects.toMatchObject(refused);
  },
);

it('ends a body that arrives too slowly', async () => {
  const receiver = createSourceReceiver({ deploymentsMaxSourceBytes: mebibyte }, { bytes: 10, windowMs: 50 });
  const slow = receiver.receive(of('a'), stalled(100, new Promise(() => {})), unused);
  await expect(slow).rejects.toMatchObject({ code: 'BODY_TOO_SLOW' });
  expect(listFiles()).toEqual([]);
});

it('the store of sources can be opened after a failure', async () => {
  const path = join(folder, 'blocked');
  writeFileSync(path, '');
  const store = createSourceStore({ dataDir: path, deploymentsSourceStore: undefined, tlsCaFile: undefined });
  await expect(store.open()).rejects.toThrow('ENOTDIR');
  rmSync(path);
  await store.open();
  await store.close();
});
