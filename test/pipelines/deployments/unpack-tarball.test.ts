import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync, gzipSync } from 'node:zlib';
import { Header, type HeaderData } from 'tar';
import { beforeEach, expect, it } from 'vitest';
import { unpackTarball } from '../../../pipelines/deployments/build/unpack-tarball.ts';
import { folderForTest } from '../../folders.ts';

let root: string;
let folder: string;

beforeEach(() => {
  root = folderForTest();
  folder = join(root, 'source');
  mkdirSync(folder);
});

type Entry = HeaderData & { readonly content?: string };

/** Writes an archive entry by entry, because packing programs refuse what these tests need. */
function pack(...entries: readonly Entry[]): Buffer {
  const blocks = entries.flatMap(({ content = '', ...data }) => {
    const block = Buffer.alloc(512);
    new Header({ mode: 0o644, type: 'File', ...data, size: Buffer.byteLength(content) }).encode(block, 0);
    const body = Buffer.alloc(Math.ceil(Buffer.byteLength(content) / 512) * 512);
    body.write(content);
    return [block, body];
  });
  return gzipSync(Buffer.concat([...blocks, Buffer.alloc(1024)]));
}

const unpack = (tarball: Buffer, limits: object = {}) =>
  unpackTarball(tarball, folder, {
    maxBytes: 1_000_000,
    maxEntries: 100,
    signal: new AbortController().signal,
    ...limits,
  });

it('unpacks files, folders and links to files of the folder', async () => {
  await unpack(
    pack(
      { path: './src/graph.js', content: 'graph' },
      { path: 'bin', type: 'Directory', mode: 0o755 },
      { path: 'bin/graph.js', type: 'SymbolicLink', linkpath: '../src/graph.js' },
      { path: 'copy.js', type: 'Link', linkpath: 'src/graph.js' },
    ),
  );
  expect(readFileSync(join(folder, 'bin/graph.js'), 'utf8')).toBe('graph');
  expect(readFileSync(join(folder, 'copy.js'), 'utf8')).toBe('graph');
});

const outside = /outside of its folder|leads out of its folder/;
const hostile: readonly [what: string, entries: readonly Entry[], reason: RegExp][] = [
  ['an absolute path', [{ path: '/etc/runlake-escaped', content: 'x' }], outside],
  ['a parent', [{ path: '../escaped', content: 'x' }], outside],
  ['a parent inside a path', [{ path: 'a/../../escaped', content: 'x' }], outside],
  ['an absolute link', [{ path: 'link', type: 'SymbolicLink', linkpath: '/etc/passwd' }], outside],
  ['a link to a parent', [{ path: 'link', type: 'SymbolicLink', linkpath: '..' }], outside],
  ['a link through a folder', [{ path: 'a/link', type: 'SymbolicLink', linkpath: '../../escaped' }], outside],
  [
    'a link through another link',
    [
      { path: 'x/y', type: 'SymbolicLink', linkpath: '../z' },
      { path: 'link', type: 'SymbolicLink', linkpath: 'x/y/../..' },
    ],
    outside,
  ],
  ['a hard link to a parent', [{ path: 'link', type: 'Link', linkpath: '../escaped' }], outside],
  ['a hard link to an absolute path', [{ path: 'link', type: 'Link', linkpath: '/etc/passwd' }], outside],
  ['a device', [{ path: 'device', type: 'CharacterDevice' }], /not a file/],
  ['a block device', [{ path: 'device', type: 'BlockDevice' }], /not a file/],
  ['a pipe', [{ path: 'pipe', type: 'FIFO' }], /not a file/],
  [
    'a path that is too long',
    [{ path: `${'d/'.repeat(40)}${'n'.repeat(90)}`, content: 'x' }, { path: '../x' }],
    outside,
  ],
];

it.each(hostile)('refuses %s', async (_what, entries, reason) => {
  const error = await unpack(pack({ path: 'first.js', content: '1' }, ...entries)).then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  expect(error).toMatchObject({ code: 'BUILD_FAILED', message: expect.stringMatching(reason) });
  expect(readdirSync(root)).toEqual(['source']);
  expect(existsSync('/etc/runlake-escaped')).toBe(false);
});

it('does not write through a link that an earlier entry made', async () => {
  mkdirSync(join(folder, 'inside'));
  await unpack(
    pack({ path: 'link', type: 'SymbolicLink', linkpath: 'inside' }, { path: 'link/file', content: 'x' }),
  ).catch(() => undefined);
  expect(readdirSync(join(folder, 'inside'))).toEqual([]);
});

it('limits the size and the number of files', async () => {
  const large = pack({ path: 'large', content: 'x'.repeat(5_000) }, { path: 'other', content: 'x'.repeat(5_000) });
  await expect(unpack(large, { maxBytes: 9_999 })).rejects.toMatchObject({
    message: expect.stringMatching(/larger than 9999/),
  });
  const many = pack(...Array.from({ length: 11 }, (_, index) => ({ path: `file-${index}` })));
  await expect(unpack(many, { maxEntries: 10 })).rejects.toMatchObject({
    message: expect.stringMatching(/more than 10/),
  });
});

it('refuses archives that become very large, without blocking the process', async () => {
  const zeros = Buffer.alloc(64 * 1024 * 1024);
  const header = Buffer.alloc(512);
  new Header({ path: 'meta', mode: 0o644, type: 'GlobalExtendedHeader', size: zeros.length }).encode(header, 0);
  const padded = Buffer.concat([pack({ path: 'first.js', content: '1' }), gzipSync(zeros)]);
  const bombs: [tarball: Buffer, reason: RegExp][] = [
    [gzipSync(zeros), /not a valid tar archive/],
    [gzipSync(Buffer.concat([header, zeros])), /larger than/],
    [gzipSync(gzipSync(zeros)), /compressed twice/],
  ];
  let maxBlockedMs = 0;
  let lastMs = performance.now();
  const timer = setInterval(() => {
    maxBlockedMs = Math.max(maxBlockedMs, performance.now() - lastMs);
    lastMs = performance.now();
  }, 5);
  try {
    for (const [tarball, reason] of bombs)
      await expect(unpack(tarball)).rejects.toMatchObject({ message: expect.stringMatching(reason) });
    await unpack(padded);
  } finally {
    clearInterval(timer);
  }
  expect(maxBlockedMs).toBeLessThan(500);
  expect(readFileSync(join(folder, 'first.js'), 'utf8')).toBe('1');
});

it('unpacks an archive of many chunks, compressed or not', async () => {
  const content = randomBytes(300_000).toString('base64');
  const compressed = pack({ path: 'large', content }, { path: 'second', content: 'x' });
  for (const tarball of [compressed, gunzipSync(compressed)]) {
    await unpack(tarball);
    expect(readFileSync(join(folder, 'large'), 'utf8')).toBe(content);
    expect(readFileSync(join(folder, 'second'), 'utf8')).toBe('x');
  }
});

it.each([
  ['no bytes', Buffer.alloc(0)],
  ['random bytes', randomBytes(4_096)],
  ['text', Buffer.from('hello'.repeat(400))],
  ['a broken archive', pack({ path: 'a', content: 'x'.repeat(2_000) }).subarray(0, 60)],
  ['an archive that ends early', gzipSync(Buffer.alloc(700, 1))],
])('refuses %s', async (_what, tarball) => {
  await expect(unpack(tarball)).rejects.toMatchObject({ code: 'BUILD_FAILED' });
});
