/**
 * Unpacks the tarball of a source. The tarball is not trusted.
 *
 * Invariant: unpacking writes only below the folder, and only regular files, folders, and links to files of the folder.
 * The number of entries and their total size are limited while unpacking, whatever the headers say.
 */
import { posix } from 'node:path';
import { type ReadEntry, Unpack } from 'tar';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { raceWithAbort } from '../../../infra/timeouts/with-timeout.ts';

export interface UnpackLimits {
  readonly maxBytes: number;
  readonly maxEntries: number;
  readonly signal: AbortSignal;
}

const createError = (reason: string) => runlakeError('BUILD_FAILED', { reason });

const allowedTypes: ReadonlySet<string> = new Set([
  ...['File', 'OldFile', 'ContiguousFile', 'Directory', 'SymbolicLink', 'Link'],
]);
const maxPathLength = 1_024;

/** Unpacks a tarball, compressed with gzip or not. @throws BUILD_FAILED */
export async function unpackTarball(
  tarball: Buffer,
  folder: string,
  { maxBytes, maxEntries, signal }: UnpackLimits,
): Promise<void> {
  let entries = 0;
  let bytes = 0;
  let refusal: unknown;
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
        if (entries > maxEntries) throw createError(`The source has more than ${maxEntries} files`);
        checkEntry(entry as ReadEntry);
        bytes += (entry as ReadEntry).size;
        if (bytes > maxBytes) throw createError(`The source is larger than ${maxBytes} bytes when unpacked`);
        return true;
      } catch (error) {
        refusal = error;
        unpack.abort(error as Error);
        return false;
      }
    },
  });
  try {
    await raceWithAbort(
      new Promise<void>((resolve, reject) => {
        unpack.on('close', resolve);
        unpack.on('error', reject);
        unpack.end(tarball);
      }),
      signal,
    );
  } catch (error) {
    signal.throwIfAborted();
    throw refusal ?? createError(`The source is not a valid tar archive (${describe(error)})`);
  }
  if (refusal !== undefined) throw refusal;
  if (entries === 0) throw createError('The source is empty, or not a tar archive');
}

function describe(error: unknown): string {
  const { code, message } = error as { readonly code?: string; readonly message?: string };
  return (code ?? message ?? 'unknown error').slice(0, 100);
}

/** @throws BUILD_FAILED if the entry could have an effect outside of the folder. */
function checkEntry({ path, type, linkpath }: ReadEntry): void {
  const shown = JSON.stringify(path.slice(0, 200));
  if (!allowedTypes.has(type)) throw createError(`The source contains ${shown}, which is not a file (${type})`);
  if (path.length > maxPathLength) throw createError(`The source contains a path that is too long: ${shown}`);
  if (isOutside(path)) throw createError(`The source contains ${shown}, which is outside of its folder`);
  if (type !== 'SymbolicLink' && type !== 'Link') return;
  const target = String(linkpath ?? '');
  // A symbolic link is relative to its own folder, a hard link to the root of the archive.
  const resolved = type === 'Link' ? target : posix.join(posix.dirname(path), target);
  if (target === '' || target.startsWith('/') || hasInnerParent(target) || isOutside(resolved)) {
    throw createError(`The source contains the link ${shown}, which leads out of its folder`);
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
