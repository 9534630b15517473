/**
 * Reads the schemas of graphs whose state is a TypeScript type, in the background.
 *
 * Invariant: only requests for schemas wait until types are read, for a bounded time. A failure affects only schemas.
 *
 *   1. Graphs in TypeScript that have their schemas at run time are skipped.
 *   2. A child process reads the types of the remaining graphs one after the other, and announces each graph before
 *      reading it. If a graph ends the process or takes too long, that graph is skipped, and a new process reads the
 *      remaining graphs.
 *   3. The reason for each skipped graph is logged once.
 */
import { EventEmitter, once } from 'node:events';
import { Type } from 'typebox';
import { Compile } from 'typebox/compile';
import { locateProgram } from '../../../infra/embedded/child-program.ts';
import type { AccountSource } from '../../../infra/isolation/process-accounts.ts';
import { Dictionary } from '../../../infra/json/dictionary.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import type { GraphSource } from '../graphs/graphs-file.ts';
import type { GraphSchemas } from '../requests/schemas.ts';
import { computeWorkerFrameLimits, createViolationError, type Frame, requireJson } from '../workers/frames.ts';
import { parseAnswer } from '../workers/front/parse-answer.ts';
import { type ProcessEnd, ProjectProcess } from '../workers/front/project-process.ts';
import type { WorkerPool } from '../workers/front/worker-pool.ts';
import { type CachedTypes, cacheTypes, readCachedTypes } from './cached-types.ts';
import type { TypedGraph } from './read-graph-types.ts';
import type { TypesProcessMessage, TypesTask } from './types-process.ts';

export interface TypesOptions {
  /** The usable graphs. */
  readonly graphs: readonly GraphSource[];
  readonly pool: Pick<WorkerPool, 'query'>;
  readonly cacheFolder: string;
  /** Timeout for one graph. If 0, types are not read. */
  readonly limitMs: number;
  readonly heapMegabytes: number;
  readonly accounts?: AccountSource | undefined;
  readonly logger: Logger;
}

export interface GraphTypes {
  /** Returns the types of a graph; undefined until they are read, and if reading failed. */
  of(graphId: string): TypedGraph | undefined;
  /** Like `of`, but waits until the graph was read or skipped, or `maxWaitMs` have passed. */
  waitFor(graphId: string, maxWaitMs: number): Promise<TypedGraph | undefined>;
}

export interface GraphTypesReader extends GraphTypes {
  /** Stops reading. Resolves when no process remains. */
  stop(): Promise<void>;
}

export function readTypesInBackground(options: TypesOptions): GraphTypesReader {
  const { graphs, pool, logger, limitMs } = options;
  const found = new Map<string, TypedGraph>();
  const typescript = limitMs === 0 ? [] : graphs.filter(({ path }) => /\.[cm]?tsx?$/.test(path));
  const pending = new Set(typescript.map(({ graphId }) => graphId));
  const keeping: Promise<void>[] = [];
  const settled = new EventEmitter<Record<string, []>>().setMaxListeners(0);
  let child: ProjectProcess | undefined;
  let isStopped = false;

  function markSettled(graphId: string): void {
    pending.delete(graphId);
    settled.emit(`graph ${graphId}`);
  }

  function giveUp(graph: string, reason: string): void {
    if (!isStopped) logger.warn({ graph, reason }, 'schemas of a graph not read from its types');
    markSettled(graph);
  }

  async function readAll(): Promise<void> {
    let rest: readonly GraphSource[] = [];
    for (const source of typescript) {
      if (await hasRuntimeSchemas(pool, source.graphId)) markSettled(source.graphId);
      else rest = [...rest, source];
    }
    while (rest.length > 0 && !isStopped) rest = await readInProcess(rest);
  }

  /** Reads graphs in one process. @returns the remaining graphs, which are always fewer than `sources`. */
  async function readInProcess(sources: readonly GraphSource[]): Promise<readonly GraphSource[]> {
    const remaining = new Set(sources);
    const kept = await readCached(options.cacheFolder, sources);
    if (isStopped) return [];
    let current = sources[0]!;
    let hasTimedOut = false;
    let timeout: NodeJS.Timeout | undefined;
    const receive = (message: TypesProcessMessage) => {
      const source = sources.find(({ graphId }) => graphId === message.graphId);
      if (source === undefined || !remaining.has(source)) throw createViolationError('a graph that it was not given');
      clearTimeout(timeout);
      if (message.kind === 'reading') {
        current = source;
        timeout = setTimeout(() => {
          hasTimedOut = true;
          child?.kill();
        }, limitMs);
        return;
      }
      remaining.delete(source);
      if (message.kind === 'unread') return giveUp(message.graphId, message.reason);
      const { typed, files } = message;
      found.set(message.graphId, typed);
      if (files !== undefined) keeping.push(cacheTypes(options.cacheFolder, source, { files, typed }));
      markSettled(message.graphId);
    };
    const reason = await new Promise<string>((resolve) => {
      child = startProcess(options, receive, ({ code, signal, error, violation }) => {
        if (error !== undefined) resolve(`it did not start: ${error.message}`);
        else resolve(violation ?? `its process ended by ${signal ?? `code ${code}`}`);
      });
      child.send({ graphs: sources, kept } satisfies TypesTask);
    });
    clearTimeout(timeout);
    if (remaining.delete(current))
      giveUp(current.graphId, hasTimedOut ? `it took longer than ${limitMs / 1_000} s` : reason);
    return [...remaining];
  }

  const done = readAll()
    .catch((error: unknown) => {
      if (!isStopped) logger.warn({ error }, 'schemas of graphs not read from their types');
    })
    .finally(() => [...pending].forEach(markSettled))
    .then(() => Promise.all(keeping));
  return {
    of: (graphId) => found.get(graphId),
    async waitFor(graphId, maxWaitMs) {
      if (maxWaitMs > 0 && pending.has(graphId)) {
        // An abort means that the wait timed out, which is not an error.
        await once(settled, `graph ${graphId}`, { signal: AbortSignal.timeout(maxWaitMs) }).catch(() => undefined);
      }
      return found.get(graphId);
    },
    async stop() {
      isStopped = true;
      for (const graphId of pending) markSettled(graphId);
      child?.kill();
      await done;
    },
  };
}

async function readCached(folder: string, sources: readonly GraphSource[]): Promise<Record<string, CachedTypes>> {
  const kept: Record<string, CachedTypes> = {};
  for (const source of sources) {
    const found = await readCachedTypes(folder, source);
    if (found !== undefined) kept[source.graphId] = found;
  }
  return kept;
}

/** Returns true if a graph has its schemas at run time. Ignores the config schema, because many graphs have none. */
export function isComplete({ input_schema, output_schema, state_schema }: GraphSchemas): boolean {
  return input_schema !== null && output_schema !== null && state_schema !== null;
}

async function hasRuntimeSchemas(pool: Pick<WorkerPool, 'query'>, graphId: string): Promise<boolean> {
  try {
    const known: GraphSchemas = parseAnswer(await pool.query({ kind: 'schemas', graphId, config: {} }));
    return isComplete(known);
  } catch {
    // A function that returns no graph for an empty config may still have types.
    return false;
  }
}

function startProcess(
  { heapMegabytes, accounts }: TypesOptions,
  receive: (message: TypesProcessMessage) => void,
  onExit: (end: ProcessEnd) => void,
): ProjectProcess {
  const { path, execArgv } = locateProgram(import.meta.url, './types-process');
  return new ProjectProcess({
    program: path,
    environment: {},
    accounts,
    execArgv: [`--max-old-space-size=${heapMegabytes}`, ...execArgv],
    limits: { ...computeWorkerFrameLimits(0), bodyBytes: 0 },
    onFrame: (frame) => receive(decodeTypes(frame)),
    onExit,
  });
}

const jsonObjectSchema = Dictionary(Type.Unknown());
const schemas = Type.Object({
  input_schema: Type.Union([jsonObjectSchema, Type.Null()]),
  output_schema: Type.Union([jsonObjectSchema, Type.Null()]),
  state_schema: Type.Union([jsonObjectSchema, Type.Null()]),
  config_schema: Type.Union([jsonObjectSchema, Type.Null()]),
  context_schema: Type.Union([jsonObjectSchema, Type.Null()]),
});
const graphId = Type.String();
const messageValidator = Compile(
  Type.Union([
    Type.Object({ kind: Type.Literal('reading'), graphId }),
    Type.Object({
      kind: Type.Literal('read'),
      graphId,
      typed: Type.Object({ schemas, subgraphs: Dictionary(schemas) }),
      files: Type.Optional(Dictionary(Type.String())),
    }),
    Type.Object({ kind: Type.Literal('unread'), graphId, reason: Type.String() }),
  ]),
);

/** Validates a message. The compiler is project code, so the message is untrusted. @throws WORKER_PROTOCOL_VIOLATED */
function decodeTypes({ head }: Frame): TypesProcessMessage {
  requireJson(head);
  const message: unknown = JSON.parse(head.toString('utf8'));
  if (!messageValidator.Check(message)) throw createViolationError('a message that does not match its schema');
  return message as TypesProcessMessage;
}
