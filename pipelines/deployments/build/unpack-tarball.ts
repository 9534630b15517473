/**
 * Unpacks the tarball of a source. The tarball is not trusted.
 *
 * Invariant: unpacking writes only below the folder, and only regular files, folders, and links to files of the folder.
 * The number of entries and their total size are limited while unpacking, whatever the headers say.
 *
 * The archive is decompressed here, in another thread and chunk by chunk. The `tar` library would decompress it at once
 * in this thread, and a small archive can become very large.
 */
import { once } from 'node:events';
import { posix } from 'node:path';
import { Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { type ReadEntry, Unpack } from 'tar';
import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import { raceWithAbort } from '../../../infra/timeouts/with-timeout.ts';
import { createBuildError } from './build-folder.ts';

export interface UnpackLimits {
  readonly maxBytes: number;
  readonly maxEntries: number;
  readonly signal: AbortSignal;
}

const allowedTypes: ReadonlySet<string> = new Set([
  ...['File', 'OldFile', 'ContiguousFile', 'Directory', 'SymbolicLink', 'Link'],
]);
const maxPathLength = 1_024;

const chunkBytes = 64 * 1024;
/** Bytes of an archive that an entry adds to its content: headers, of which a long path needs several, and padding. */
const maxOverheadBytes = 8 * 1024;
/** First bytes of formats that the library decompresses itself. Sources: RFC 1952, RFC 8878. */
const compressedStarts = [Buffer.from([0x1f, 0x8b]), Buffer.from([0x28, 0xb5, 0x2f, 0xfd])];
const isCompressed = (bytes: Buffer) => compressedStarts.some((start) => bytes.subarray(0, 4).indexOf(start) === 0);

/** Unpacks a tarball, compressed with gzip or not. @throws BUILD_FAILED */
export async function unpackTarball(
  tarball: Buffer,
  folder: string,
  { maxBytes, maxEntries, signal }: UnpackLimits,
): Promise<void> {
  let entries = 0;
  let bytes = 0;
  let refusal: unknown;
  let isComplete = false;
  const unpack = new Unpack({
    cwd: folder,
    strict: true,
    preservePaths: false,
    preserveOwner: false,
    noMtime: true,
    fmode: 0o644,
    dmode: 0o755,
    umask: 0o022,
    filter: (_path, entry) => {
      if (refusal !== undefined) return false;
      try {
        entries += 1;
        if (entries > maxEntries) throw createBuildError(`The source has more than ${maxEntries} files`);
        checkEntry(entry as ReadEntry);
        bytes += (entry as ReadEntry).size;
        if (bytes > maxBytes) throw createSizeError(maxBytes);
        return true;
      } catch (error) {
        refusal = error;
        unpack.abort(error as Error);
        return false;
      }
    },
  });
  unpack.once('eof', () => {
    isComplete = true;
  });
  const ended = new Promise<void>((resolve, reject) => {
    unpack.on('close', resolve);
    unpack.on('error', reject);
  });
  const feed = async () => {
    let archiveBytes = 0;
    for await (const chunk of decompress(tarball)) {
      signal.throwIfAborted();
      archiveBytes += chunk.length;
      if (archiveBytes > maxBytes + maxEntries * maxOverheadBytes) throw createSizeError(maxBytes);
      if (!unpack.write(chunk)) await Promise.race([once(unpack, 'drain'), ended]);
      // The library would keep what follows the end of the archive.
      if (isComplete || refusal !== undefined) break;
    }
    unpack.end();
  };
  try {
    await raceWithAbort(Promise.all([feed(), ended]), signal);
  } catch (error) {
    signal.throwIfAborted();
    throw (
      refusal ??
      (isRunlakeError(error) ? error : createBuildError(`The source is not a valid tar archive (${describe(error)})`))
    );
  }
  if (refusal !== undefined) throw refusal;
  if (entries === 0) throw createBuildError('The source is empty, or not a tar archive');
}

const createSizeError = (maxBytes: number) =>
  createBuildError(`The source is larger than ${maxBytes} bytes when unpacked`);

/** Yields the bytes of an archive, which may be compressed once. @throws BUILD_FAILED, errors of zlib */
async function* decompress(tarball: Buffer): AsyncGenerator<Buffer> {
  const chunks = Readable.from(split(tarball));
  if (!isCompressed(tarball)) {
    yield* chunks;
    return;
  }
  let start: Buffer | undefined = Buffer.alloc(0);
  for await (const chunk of chunks.pipe(createGunzip()) as AsyncIterable<Buffer>) {
    if (start === undefined) {
      yield chunk;
      continue;
    }
    start = Buffer.concat([start, chunk]);
    if (start.length < 4) continue;
    if (isCompressed(start)) throw createBuildError('The source is compressed twice');
    yield start;
    start = undefined;
  }
}

function* split(bytes: Buffer): Generator<Buffer> {
  for (let at = 0; at < bytes.length; at += chunkBytes) yield bytes.subarray(at, at + chunkBytes);
}

function describe(error: unknown): string {
  const { code, message } = error as { readonly code?: string; readonly message?: string };
  return (code ?? message ?? 'unknown error').slice(0, 100);
}

/** @throws BUILD_FAILED if the entry could have an effect outside of the folder. */
function checkEntry({ path, type, linkpath }: ReadEntry): void {
  const shown = JSON.stringify(path.slice(0, 200));
  if (!allowedTypes.has(type)) throw createBuildError(`The source contains ${shown}, which is not a file (${type})`);
  if (path.length > maxPathLength) throw createBuildError(`The source contains a path that is too long: ${shown}`);
  if (isOutside(path)) throw createBuildError(`The source contains ${shown}, which is outside of its folder`);
  if (type !== 'SymbolicLink' && type !== 'Link') return;
  const target = String(linkpath ?? '');
  // A symbolic link is relative to its own folder, a hard link to the root of the archive.
  const resolved = type === 'Link' ? target : posix.join(posix.dirname(path), target);
  if (target === '' || target.startsWith('/') || hasInnerParent(target) || isOutside(resolved)) {
    throw createBuildError(`The source contains the link ${shown}, which leads out of its folder`);
  }
}

/** Whether `..` follows another part. Where such a path leads depends on other links, not only on its text. */
function hasInnerParent(target: string): boolean {
  const parts = target.split('/').filter((part) => part !== '' && part !== '.');
  const firstName = parts.findIndex((part) => part !== '..');
  return firstName >= 0 && parts.lastIndexOf('..') > firstName;
}

function isOutside(path: string): boolean {
  if (path.startsWith('/') || path.includes('\0') || path.includes('\\') || /^[a-z]:/i.test(path)) return true;
  const normal = posix.normalize(path);
  return normal === '..' || normal.startsWith('../');
}
