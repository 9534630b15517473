import { randomUUID } from 'node:crypto';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { beforeAll, expect, it, onTestFinished } from 'vitest';
import type { Config } from '../../../infra/config/settings.ts';
import { createTokenSigner } from '../../../infra/signing/token-signer.ts';
import { createSourceReceiver } from '../../../pipelines/deployments/receive-source.ts';
import { requestDeletion } from '../../../pipelines/deployments/request-deletion.ts';
import { createSourceStore, type SourceStore } from '../../../pipelines/deployments/source-store.ts';
import { createUpload, readSource, receiveUpload } from '../../../pipelines/deployments/uploads.ts';
import { folderForSuite } from '../../folders.ts';
import { forSuite } from '../../for-suite.ts';
import { isLinuxRoot } from '../../house/prerequisites.ts';
import { mountDisk } from '../../infra/full-disk.ts';
import { openDeployments } from './add-deployment.ts';

const dataDir = folderForSuite();
let deploymentId: string;

const depsOf = (overrides: Partial<Config> = {}) => {
  const config = { ...under.config, dataDir, ...overrides };
  return {
    ...under,
    config,
    sourceStore: createSourceStore(config),
    uploadSigner: createTokenSigner('secret', 'uploads'),
    sourceReceiver: createSourceReceiver(config),
  };
};
const wait = AbortSignal.timeout(600_000);

const under = forSuite(() => openDeployments());
beforeAll(async () => {
  writeFileSync(join(dataDir, 'secret.key'), 'the secret key', { mode: 0o600 });
  deploymentId = (await under.create('uploads')).id;
});

it('a link works once, and only while it is valid', async () => {
  const deps = depsOf({ deploymentsMaxSourceBytes: 1_024 });
  const { token, objectPath } = await createUpload(deps, under.workspaceId, deploymentId);
  const send = (bytes: number, key = token) => receiveUpload(deps, key, Readable.from([Buffer.alloc(bytes)]));
  await expect(send(10, `${token}x`)).rejects.toMatchObject({ code: 'UPLOAD_LINK_INVALID' });
  await expect(send(2_000)).rejects.toMatchObject({ code: 'SOURCE_TOO_LARGE' });
  await send(1_000);
  await expect(send(1_000)).rejects.toMatchObject({ code: 'UPLOAD_LINK_INVALID' });
  expect(await readSource(deps, deploymentId, objectPath, wait)).toHaveLength(1_000);
  const expired = deps.uploadSigner.sign(randomUUID(), Math.floor(Date.now() / 1_000) - 1);
  await expect(send(10, expired)).rejects.toMatchObject({ code: 'UPLOAD_LINK_INVALID' });
  await (await deps.sourceStore.open()).put(objectPath, Buffer.from('other content'));
  await expect(readSource(deps, deploymentId, objectPath, wait)).rejects.toMatchObject({ code: 'BUILD_FAILED' });
});

it.runIf(isLinuxRoot('a full disk'))('a link works again after the store of sources was full', async () => {
  const disk = mountDisk(1);
  onTestFinished(() => disk.remove());
  disk.fill();
  const deps = depsOf();
  const { token } = await createUpload(deps, under.workspaceId, deploymentId);
  const send = (sourceStore: SourceStore) =>
    receiveUpload({ ...deps, sourceStore }, token, Readable.from([Buffer.alloc(10)]));
  const full = createSourceStore({ ...under.config, dataDir: disk.folder });
  await expect(send(full)).rejects.toMatchObject({ code: 'SOURCE_NOT_STORED', status: 503 });
  await send(deps.sourceStore);
});

it('a link accepts one content if several are sent at a time', async () => {
  const deps = depsOf();
  const { token, objectPath } = await createUpload(deps, under.workspaceId, deploymentId);
  const send = (body: AsyncIterable<Buffer> | Buffer[]) => receiveUpload(deps, token, Readable.from(body));
  let sent: Promise<void> | undefined;
  const second = async function* () {
    yield Buffer.from('second');
    // The first request is served while the second one is being received.
    sent = send([Buffer.from('first')]);
    await sent;
  };
  await expect(send(second())).rejects.toMatchObject({ code: 'UPLOAD_LINK_INVALID' });
  await sent;
  expect((await readSource(deps, deploymentId, objectPath, wait)).toString()).toBe('first');
});

it('leaves no source of a deployment that is deleted during its upload', async () => {
  const deps = depsOf();
  const { id } = await under.create('deleted during its upload');
  const { token, objectPath } = await createUpload(deps, under.workspaceId, id);
  const body = async function* () {
    yield Buffer.alloc(10);
    await requestDeletion(under.database, under.workspaceId, id, { deletesProject: false });
    await expect(createUpload(deps, under.workspaceId, id)).rejects.toMatchObject({ code: 'NOT_FOUND' });
    await under.database.execute('DELETE FROM deployments WHERE id = $1', [id]);
  };
  await expect(receiveUpload(deps, token, Readable.from(body()))).rejects.toMatchObject({
    code: 'UPLOAD_LINK_INVALID',
  });
  expect(existsSync(join(dataDir, 'deployments', 'sources', objectPath))).toBe(false);
});
