import { readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { GraphsFile } from './graphs-file.ts';

const library = '@langchain/langgraph';

/** Versions that Runlake is tested with, in words. */
export const testedLibraries = '1.x from 1.4 on';

const isTested = (version: string) => /^1\.(?:[4-9]|\d\d+)\./.test(version);

/** The copies of the library that graphs of the file load, where they are of a version that is not tested; each once. */
export async function untestedLibraries({ graphs }: GraphsFile): Promise<{ path: string; version: string }[]> {
  const found = new Map<string, string>();
  for (const folder of new Set(graphs.map(({ path }) => dirname(path)))) {
    const copy = await copyFor(folder);
    if (copy !== undefined && !isTested(copy.version)) found.set(copy.path, copy.version);
  }
  return [...found].map(([path, version]) => ({ path, version }));
}

/** The version of the library that the first graph of the file loads; undefined where there is none. */
export async function libraryVersion({ graphs }: Pick<GraphsFile, 'graphs'>): Promise<string | undefined> {
  const [first] = graphs;
  return first && (await copyFor(dirname(first.path)))?.version;
}

/** As Node looks for packages: here, then one folder up. */
async function copyFor(folder: string): Promise<{ path: string; version: string } | undefined> {
  const path = join(folder, 'node_modules', library);
  const text = await readFile(join(path, 'package.json'), 'utf8').catch(() => undefined);
  if (text !== undefined) return { path, version: String((JSON.parse(text) as { version?: unknown }).version) };
  const above = dirname(folder);
  return above === folder ? undefined : copyFor(above);
}
