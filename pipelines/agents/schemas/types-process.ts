/**
 * A process that reads the types of graphs, one after the other, and says what it found. It runs no code of the project but its
 * compiler, comes last where processors are scarce, and goes first where memory is.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { constants, setPriority } from 'node:os';
import { pathToFileURL } from 'node:url';
import type * as ts from 'typescript';
import type { GraphSource } from '../graphs/graphs-file.ts';
import { encodeFrame } from '../workers/frames.ts';
import { openParentPipe } from '../workers/parent-pipe.ts';
import { watchParent } from '../workers/parent-watch.ts';
import { hashFiles, isCurrent, type KeptTypes } from './kept-types.ts';
import { readGraphTypes, type TypedGraph, unreadable } from './read-graph-types.ts';

export interface TypesTask {
  readonly graphs: readonly GraphSource[];
  /** What was read at an earlier start, by graph. */
  readonly kept: Readonly<Record<string, KeptTypes>>;
}

export type FromTypesProcess =
  | { readonly kind: 'reading'; readonly graphId: string }
  /** `files`: those that it came from, with their hashes, unless it was kept. */
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
    await tell({ kind: 'reading', graphId });
    try {
      await tell({ kind: 'read', graphId, ...(await typesOf(source, task.kept[graphId])) });
    } catch (error) {
      await tell({ kind: 'unread', graphId, reason: error instanceof Error ? error.message : String(error) });
    }
  }
  process.exit(0);
}

/** Resolves when it is on its way: what follows may hold this process for long, or end it. */
function tell(message: FromTypesProcess): Promise<void> {
  return new Promise((resolve) => pipe.write(encodeFrame(message), resolve));
}

async function typesOf(
  source: GraphSource,
  kept: KeptTypes | undefined,
): Promise<{ readonly typed: TypedGraph; readonly files?: Record<string, string> }> {
  if (kept !== undefined && (await isCurrent(kept))) return { typed: kept.typed };
  const { files: paths, ...typed } = readGraphTypes(await compilerFor(source.path), source);
  return { typed, files: await hashFiles(paths) };
}

/** The compiler that the project of a module has. @throws GRAPH_TYPES_UNREADABLE where it has none that can be asked. */
async function compilerFor(path: string): Promise<typeof ts> {
  const { resolve } = createRequire(path);
  let place: string;
  try {
    place = resolve('typescript');
  } catch {
    throw unreadable(
      "the package 'typescript' is not installed in its project: install it there, or say the state with zod",
    );
  }
  const compiler = ((await import(pathToFileURL(place).href)) as { default?: typeof ts }).default;
  if (typeof compiler?.createProgram === 'function') return compiler;
  const { version } = JSON.parse(await readFile(resolve('typescript/package.json'), 'utf8')) as { version: string };
  throw unreadable(`version ${version} of the package 'typescript' in its project cannot be asked for types`);
}
