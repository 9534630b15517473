/**
 * Downloads of the stack, in a cache that all stacks of the user share.
 *
 * Invariant: a folder of the cache is complete and verified, or does not exist; its contents never change.
 *
 * 1. If the folder exists, every pinned file in it is verified against its SHA-256 again.
 * 2. Otherwise `download` fills a draft next to it, every file is verified, `unpack` runs, and the draft is renamed. If
 *    another process was faster, its folder is used and the draft is deleted.
 *
 * A process that is killed leaves a draft that is never used; the next download deletes drafts that are older than a day.
 */
import { createHash, randomBytes } from 'node:crypto';
import { createReadStream, existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { isSystemError } from '../../infra/embedded/private-file.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Pin } from './pins.ts';

export interface PinnedDownload {
  readonly part: string;
  readonly pin: Pin;
  readonly cacheFolder: string;
  /** Puts the files into `<folder>/files`. */
  readonly download: (folder: string) => Promise<unknown>;
  /** Unpacks the verified files into the same folder. */
  readonly unpack?: (folder: string) => Promise<unknown>;
  /** Whether a pinned file is required on this platform. Default: all are. */
  readonly expected?: (file: string) => boolean;
  /** Whether files without a pin are accepted, because their source verifies signatures. Default: no. */
  readonly allowsUnpinned?: boolean;
}

const draftEnding = '.draft';
const dayMs = 24 * 3_600_000;

/**
 * Returns the cache folder of the part, with its files in `files`; downloads them if necessary.
 *
 * @throws STACK_CHECKSUM_MISMATCH with the file; the errors of `download` and `unpack`.
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

/** Returns the name of the cache folder; different pins have different folders. */
function contentName(pin: Pin): string {
  return createHash('sha256').update(JSON.stringify(pin)).digest('hex').slice(0, 8);
}

async function checkFiles(options: PinnedDownload, folder: string): Promise<void> {
  const { part, pin, expected = () => true, allowsUnpinned = false } = options;
  const there = readdirSync(folder);
  const missing = Object.keys(pin.files).filter((file) => expected(file) && !there.includes(file));
  if (missing.length > 0 && !allowsUnpinned) {
    throw runlakeError('STACK_DOWNLOAD_FAILED', {
      part,
      program: 'the download',
      reason: `${missing.join(', ')} is missing in ${folder}`,
    });
  }
  for (const file of there) {
    const path = join(folder, file);
    const pinned = pin.files[file];
    if (pinned === undefined && allowsUnpinned) continue;
    const found = await sha256(path);
    if (found !== pinned)
      throw runlakeError('STACK_CHECKSUM_MISMATCH', { part, path, found, pinned: pinned ?? 'none' });
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
