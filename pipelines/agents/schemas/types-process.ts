/**
 * Entry point of the process that reads the types of graphs, one after the other. It executes no project code except
 * the compiler of the project. It has the lowest CPU priority, and the kernel kills it first when memory is short.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { constants, setPriority } from 'node:os';
import { pathToFileURL } from 'node:url';
import type * as ts from 'typescript';
import type { GraphSource } from '../graphs/graphs-file.ts';
import { openParentPipe, watchParent } from '../workers/child/outbox.ts';
import { encodeFrame } from '../workers/frames.ts';
import { type CachedTypes, hashFiles, isCurrent } from './cached-types.ts';
import { createUnreadableTypesError, readGraphTypes, type TypedGraph } from './read-graph-types.ts';

export interface TypesTask {
  readonly graphs: readonly GraphSource[];
  /** Cached types, by graph id. */
  readonly kept: Readonly<Record<string, CachedTypes>>;
}

export type TypesProcessMessage =
  | { readonly kind: 'reading'; readonly graphId: string }
  /** `files` contains hashes of the files that the types depend on; it is absent if the types came from the cache. */
  | {
      readonly kind: 'read';
      readonly graphId: string;
      readonly typed: TypedGraph;
      readonly files?: Readonly<Record<string, string>>;
    }
  | { readonly kind: 'unread'; readonly graphId: string; readonly reason: string };

setPriority(constants.priority.PRIORITY_LOW);
await writeFile('/proc/self/oom_score_adj', '1000').catch(() => undefined);
watchParent();
const pipe = openParentPipe((task) => void readAll(task as TypesTask));

async function readAll(task: TypesTask): Promise<void> {
  for (const source of task.graphs) {
    const { graphId } = source;
    await send({ kind: 'reading', graphId });
    try {
      await send({ kind: 'read', graphId, ...(await readTypes(source, task.kept[graphId])) });
    } catch (error) {
      await send({ kind: 'unread', graphId, reason: error instanceof Error ? error.message : String(error) });
    }
  }
  process.exit(0);
}

/** Resolves when the message is written, because the next step may block or end this process. */
function send(message: TypesProcessMessage): Promise<void> {
  return new Promise((resolve) => pipe.write(encodeFrame(message), resolve));
}

async function readTypes(
  source: GraphSource,
  kept: CachedTypes | undefined,
): Promise<{ readonly typed: TypedGraph; readonly files?: Record<string, string> }> {
  if (kept !== undefined && (await isCurrent(kept))) return { typed: kept.typed };
  const { files: paths, ...typed } = readGraphTypes(await importCompiler(source.path), source);
  return { typed, files: await hashFiles(paths) };
}

/**
 * Imports the TypeScript compiler of a module's project. @throws GRAPH_TYPES_UNREADABLE if it is missing or has no
 * usable API.
 */
async function importCompiler(path: string): Promise<typeof ts> {
  const { resolve } = createRequire(path);
  let location: string;
  try {
    location = resolve('typescript');
  } catch {
    throw createUnreadableTypesError(
      "the package 'typescript' is not installed in its project: install it there, or define the state with zod",
    );
  }
  const compiler = ((await import(pathToFileURL(location).href)) as { default?: typeof ts }).default;
  if (typeof compiler?.createProgram === 'function') return compiler;
  const { version } = JSON.parse(await readFile(resolve('typescript/package.json'), 'utf8')) as { version: string };
  throw createUnreadableTypesError(
    `version ${version} of the package 'typescript' in its project has no API to read types`,
  );
}
