import { readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { GraphsFile } from './graphs-file.ts';

const library = '@langchain/langgraph';

/** Description of the LangGraph versions that Runlake is tested with. */
export const testedLibraries = '1.x from 1.4 on';

const isTested = (version: string) => /^1\.(?:[4-9]|\d\d+)\./.test(version);

/** Returns the distinct copies of LangGraph that graphs of the file load and that have an untested version. */
export async function untestedLibraries({ graphs }: GraphsFile): Promise<{ path: string; version: string }[]> {
  const found = new Map<string, string>();
  for (const folder of new Set(graphs.map(({ path }) => dirname(path)))) {
    const copy = await findCopy(folder);
    if (copy !== undefined && !isTested(copy.version)) found.set(copy.path, copy.version);
  }
  return [...found].map(([path, version]) => ({ path, version }));
}

/** Returns the LangGraph version that the first graph of the file loads; undefined if none is found. */
export async function libraryVersion({ graphs }: Pick<GraphsFile, 'graphs'>): Promise<string | undefined> {
  const [first] = graphs;
  return first && (await findCopy(dirname(first.path)))?.version;
}

/** Resolves the package like Node: in this folder, then in each parent folder. */
async function findCopy(folder: string): Promise<{ path: string; version: string } | undefined> {
  const path = join(folder, 'node_modules', library);
  const text = await readFile(join(path, 'package.json'), 'utf8').catch(() => undefined);
  if (text !== undefined) return { path, version: String((JSON.parse(text) as { version?: unknown }).version) };
  const above = dirname(folder);
  return above === folder ? undefined : findCopy(above);
}
