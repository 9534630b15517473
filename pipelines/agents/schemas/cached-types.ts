import { createHash } from 'node:crypto';
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ExportReference } from '../graphs/graphs-file.ts';
import type { TypedGraph } from './read-graph-types.ts';

export interface CachedTypes {
  /** SHA-256 of each file that the types depend on: of the project, its packages and its compiler. */
  readonly files: Readonly<Record<string, string>>;
  readonly typed: TypedGraph;
}

/** Format version. It is part of the file name, so that files of older versions are ignored. */
const formatVersion = 2;

/**
 * Reads the cached types of an export; undefined if there are none. Cached types may be outdated; check them with
 * {@link isCurrent}.
 */
export async function readCachedTypes(folder: string, source: ExportReference): Promise<CachedTypes | undefined> {
  try {
    return JSON.parse(await readFile(buildCachePath(folder, source), 'utf8')) as CachedTypes;
  } catch {
    return undefined;
  }
}

/** Caches the types of an export for the next start. Writes atomically; ignores a folder that is not writable. */
export async function cacheTypes(folder: string, source: ExportReference, types: CachedTypes): Promise<void> {
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const location = buildCachePath(folder, source);
    await writeFile(`${location}.${process.pid}`, JSON.stringify(types));
    await rename(`${location}.${process.pid}`, location);
  } catch {
    // Ignore the error: without a cache, the next start reads the types again.
  }
}

/** Returns true if none of the files that the types depend on has changed. */
export async function isCurrent({ files }: CachedTypes): Promise<boolean> {
  try {
    for (const [path, hash] of Object.entries(files)) if ((await hashFile(path)) !== hash) return false;
    return true;
  } catch {
    return false;
  }
}

export async function hashFiles(paths: readonly string[]): Promise<Record<string, string>> {
  const files: Record<string, string> = {};
  for (const path of paths) files[path] = await hashFile(path);
  return files;
}

async function hashFile(path: string): Promise<string> {
  return createHash('sha256')
    .update(await readFile(path))
    .digest('hex');
}

function buildCachePath(folder: string, { path, name }: ExportReference): string {
  return join(
    folder,
    `${createHash('sha256')
      .update(JSON.stringify([formatVersion, path, name]))
      .digest('hex')}.json`,
  );
}
