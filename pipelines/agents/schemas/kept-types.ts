import { createHash } from 'node:crypto';
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ExportReference } from '../graphs/graphs-file.ts';
import type { TypedGraph } from './read-graph-types.ts';

interface Kept {
  /** SHA-256 of each file that the types came from: of the project, its packages and its compiler. */
  readonly files: Readonly<Record<string, string>>;
  readonly typed: TypedGraph;
}

/** Part of the name, so that what older versions kept is not read. */
const form = 2;

/** What was read of an export before, if none of the files that it came from has changed since. */
export async function keptTypes(folder: string, source: ExportReference): Promise<TypedGraph | undefined> {
  try {
    const { files, typed } = JSON.parse(await readFile(placeOf(folder, source), 'utf8')) as Kept;
    for (const [path, hash] of Object.entries(files)) if ((await hashOf(path)) !== hash) return undefined;
    return typed;
  } catch {
    return undefined;
  }
}

/** Keeps it for the next start, where the folder can be written; a file is there whole or not at all. */
export async function keepTypes(
  folder: string,
  source: ExportReference,
  { paths, typed }: { readonly paths: readonly string[]; readonly typed: TypedGraph },
): Promise<void> {
  try {
    const files: Record<string, string> = {};
    for (const path of paths) files[path] = await hashOf(path);
    await mkdir(folder, { recursive: true });
    const place = placeOf(folder, source);
    await writeFile(`${place}.${process.pid}`, JSON.stringify({ files, typed } satisfies Kept));
    await rename(`${place}.${process.pid}`, place);
  } catch {
    // It is read again at the next start.
  }
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
