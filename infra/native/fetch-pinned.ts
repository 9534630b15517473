/**
 * The stack's downloads, kept in a cache that every stack of the user shares.
 *
 * Invariant: a folder of the cache appears whole and checked, or not at all; what is in it is never changed.
 *
 * 1. It is there: every pinned file in it is checked against its SHA-256 again.
 * 2. It is not: `download` fills a draft beside it, every file is checked, `unpack` runs, and the draft is renamed. Where another
 *    process was quicker, its folder is taken, and ours is removed.
 *
 * Killed at any point: a draft is left that nobody looks at; the next download removes those of a day ago.
 */
import { createHash, randomBytes } from 'node:crypto';
import { createReadStream, existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { isSystemError } from '../embedded/private-file.ts';
import { fault } from '../errors/runlake-error.ts';
import type { Pin } from './pins.ts';

export interface PinnedDownload {
  readonly part: string;
  readonly pin: Pin;
  readonly cacheFolder: string;
  /** Puts the files into `<folder>/files`. */
  readonly download: (folder: string) => Promise<unknown>;
  /** Makes something of the checked files, beside them. */
  readonly unpack?: (folder: string) => Promise<unknown>;
  /** Whether all pinned files have to be there (default), or those of this platform only. */
  readonly expected?: (file: string) => boolean;
  /** Whether a file without a pin is taken, because its source checks signatures itself. Default: it is refused. */
  readonly allowsUnpinned?: boolean;
}

const draftEnding = '.draft';
const dayMs = 24 * 3_600_000;

/**
 * The folder of the cache with the part's files in `files`.
 *
 * @throws STACK_CHECKSUM_MISMATCH that names the file; what `download` and `unpack` throw.
 */
export async function fetchPinned(options: PinnedDownload): Promise<string> {
  const { part, pin, cacheFolder, download, unpack } = options;
  const folder = join(cacheFolder, `${part}-${pin.version}-${contentName(pin)}`);
  if (existsSync(folder)) {
    await checkFiles(options, join(folder, 'files'));
    return folder;
  }
  mkdirSync(cacheFolder, { recursive: true });
  removeOldDrafts(cacheFolder);
  const draft = `${folder}.${randomBytes(6).toString('hex')}${draftEnding}`;
  mkdirSync(join(draft, 'files'), { recursive: true });
  try {
    await download(draft);
    await checkFiles(options, join(draft, 'files'));
    await unpack?.(draft);
    renameSync(draft, folder);
  } catch (error) {
    if (!isSystemError(error, 'ENOTEMPTY') && !isSystemError(error, 'EEXIST')) throw error;
  } finally {
    rmSync(draft, { recursive: true, force: true });
  }
  return folder;
}

/** Other pins are another folder. */
function contentName(pin: Pin): string {
  return createHash('sha256').update(JSON.stringify(pin)).digest('hex').slice(0, 8);
}

async function checkFiles(options: PinnedDownload, folder: string): Promise<void> {
  const { part, pin, expected = () => true, allowsUnpinned = false } = options;
  const there = readdirSync(folder);
  const missing = Object.keys(pin.files).filter((file) => expected(file) && !there.includes(file));
  if (missing.length > 0 && !allowsUnpinned) {
    throw fault('STACK_DOWNLOAD_FAILED', { part, program: folder, reason: `${missing.join(', ')} is not there` });
  }
  for (const file of there) {
    const path = join(folder, file);
    const pinned = pin.files[file];
    if (pinned === undefined && allowsUnpinned) continue;
    const found = await sha256(path);
    if (found !== pinned) throw fault('STACK_CHECKSUM_MISMATCH', { part, path, found, pinned: pinned ?? 'none' });
  }
}

async function sha256(path: string): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(path), hash);
  return hash.digest('hex');
}

function removeOldDrafts(cacheFolder: string): void {
  for (const name of readdirSync(cacheFolder)) {
    if (!name.endsWith(draftEnding)) continue;
    const path = join(cacheFolder, name);
    const made = statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? Number.POSITIVE_INFINITY;
    if (Date.now() - made > dayMs) rmSync(path, { recursive: true, force: true });
  }
}
