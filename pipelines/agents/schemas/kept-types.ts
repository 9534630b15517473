import { createHash } from 'node:crypto';
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ExportReference } from '../graphs/graphs-file.ts';
import type { TypedGraph } from './read-graph-types.ts';

export interface KeptTypes {
  /** SHA-256 of each file that the types came from: of the project, its packages and its compiler. */
  readonly files: Readonly<Record<string, string>>;
  readonly typed: TypedGraph;
}

/** Part of the name, so that what older versions kept is not read. */
const form = 2;

/** What was read of an export before, by whichever version of its files. */
export async function readKeptTypes(folder: string, source: ExportReference): Promise<KeptTypes | undefined> {
  try {
    return JSON.parse(await readFile(placeOf(folder, source), 'utf8')) as KeptTypes;
  } catch {
    return undefined;
  }
}

/** Keeps it for the next start, where the folder can be written; a file is there whole or not at all. */
export async function keepTypes(folder: string, source: ExportReference, kept: KeptTypes): Promise<void> {
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const place = placeOf(folder, source);
    await writeFile(`${place}.${process.pid}`, JSON.stringify(kept));
    await rename(`${place}.${process.pid}`, place);
  } catch {
    // It is read again at the next start.
  }
}

/** Whether none of the files that it came from has changed since. */
export async function isCurrent({ files }: KeptTypes): Promise<boolean> {
  try {
    for (const [path, hash] of Object.entries(files)) if ((await hashOf(path)) !== hash) return false;
    return true;
  } catch {
    return false;
  }
}

export async function hashFiles(paths: readonly string[]): Promise<Record<string, string>> {
  const files: Record<string, string> = {};
  for (const path of paths) files[path] = await hashOf(path);
  return files;
}

async function hashOf(path: string): Promise<string> {
  return createHash('sha256')
    .update(await readFile(path))
    .digest('hex');
}

function placeOf(folder: string, { path, name }: ExportReference): string {
  return join(
    folder,
    `${createHash('sha256')
      .update(JSON.stringify([form, path, name]))
      .digest('hex')}.json`,
  );
}
