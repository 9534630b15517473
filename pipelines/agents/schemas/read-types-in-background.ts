/**
 * Schemas of graphs whose state is a TypeScript type, read in the background.
 *
 * Invariant: only requests for schemas wait for it, for a bounded time; a failure costs only the schemas.
 *
 *   1. Each graph in TypeScript is asked for its schemas; those that know theirs at run time are left out.
 *   2. A child process reads the others, one after the other. It tells before each, so that a graph which ends it or holds it for too
 *      long is known; that one is given up, and a further process reads the rest.
 *   3. What a graph was not read for is logged, once.
 */
import { EventEmitter, once } from 'node:events';
import { createRequire } from 'node:module';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { Type } from 'typebox';
import { Compile } from 'typebox/compile';
import type { AccountSource } from '../../../infra/isolation/process-accounts.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import type { GraphSource } from '../graphs/graphs-file.ts';
import type { GraphSchemas } from '../requests/schemas.ts';
import { type Frame, limitsOfWorker, requireJson, violation } from '../workers/frames.ts';
import { type ChildEnd, WorkerChild } from '../workers/worker-child.ts';
import type { WorkerPool } from '../workers/worker-pool.ts';
import { type KeptTypes, keepTypes, readKeptTypes } from './kept-types.ts';
import type { TypedGraph } from './read-graph-types.ts';
import type { FromTypesProcess, TypesTask } from './types-process.ts';

export interface TypesOptions {
  /** Those that can be used. */
  readonly graphs: readonly GraphSource[];
  readonly pool: Pick<WorkerPool, 'ask'>;
  /** Where what was read is kept for the next start. */
  readonly keptIn: string;
  /** For one graph. 0: nothing is read. */
  readonly limitMs: number;
  readonly heapMegabytes: number;
  readonly accounts?: AccountSource | undefined;
  readonly logger: Logger;
}

export interface GraphTypes {
  /** Undefined until it is read, and if it cannot be read. */
  of(graphId: string): TypedGraph | undefined;
  /** As `of`, but waits until the graph is read or given up, or `maxWaitMs` have passed. */
  waitFor(graphId: string, maxWaitMs: number): Promise<TypedGraph | undefined>;
}

export interface ReadingTypes extends GraphTypes {
  /** Nothing of it runs afterwards. */
  stop(): Promise<void>;
}

export function readTypesInBackground(options: TypesOptions): ReadingTypes {
  const { graphs, pool, logger, limitMs } = options;
  const found = new Map<string, TypedGraph>();
  const typescript = limitMs === 0 ? [] : graphs.filter(({ path }) => /\.[cm]?tsx?$/.test(path));
  const pending = new Set(typescript.map(({ graphId }) => graphId));
  const keeping: Promise<void>[] = [];
  const settled = new EventEmitter<Record<string, []>>().setMaxListeners(0);
  let child: WorkerChild | undefined;
  let stopped = false;

  function settle(graphId: string): void {
    pending.delete(graphId);
    settled.emit(`graph ${graphId}`);
  }

  function giveUp(graph: string, reason: string): void {
    if (!stopped) logger.warn({ graph, reason }, 'the schemas of a graph were not read from its types');
    settle(graph);
  }

  async function readAll(): Promise<void> {
    let rest: readonly GraphSource[] = [];
    for (const source of typescript) {
      if (await knowsItsSchemas(pool, source.graphId)) settle(source.graphId);
      else rest = [...rest, source];
    }
    while (rest.length > 0 && !stopped) rest = await readSome(rest);
  }

  /** In one process. @returns those that are left, always fewer. */
  async function readSome(sources: readonly GraphSource[]): Promise<readonly GraphSource[]> {
    const left = new Set(sources);
    const kept = await readKept(options.keptIn, sources);
    if (stopped) return [];
    let current = sources[0]!;
    let tooLong = false;
    let clock: NodeJS.Timeout | undefined;
    const hear = (message: FromTypesProcess) => {
      const source = sources.find(({ graphId }) => graphId === message.graphId);
      if (source === undefined || !left.has(source)) throw violation('a graph that it was not asked for');
      clearTimeout(clock);
      if (message.kind === 'reading') {
        current = source;
        clock = setTimeout(() => {
          tooLong = true;
          child?.kill();
        }, limitMs);
        return;
      }
      left.delete(source);
      if (message.kind === 'unread') return giveUp(message.graphId, message.reason);
      const { typed, files } = message;
      found.set(message.graphId, typed);
      if (files !== undefined) keeping.push(keepTypes(options.keptIn, source, { files, typed }));
      settle(message.graphId);
    };
    const reason = await new Promise<string>((resolve) => {
      child = startProcess(options, hear, ({ code, signal, error, violation }) => {
        if (error !== undefined) resolve(`it did not start: ${error.message}`);
        else resolve(violation ?? `its process ended by ${signal ?? `code ${code}`}`);
      });
      child.send({ graphs: sources, kept } satisfies TypesTask);
    });
    clearTimeout(clock);
    if (left.delete(current)) giveUp(current.graphId, tooLong ? `it took longer than ${limitMs / 1_000} s` : reason);
    return [...left];
  }

  const done = readAll()
    .catch((error: unknown) => {
      if (!stopped) logger.warn({ error }, 'the schemas of graphs were not read from their types');
    })
    .finally(() => [...pending].forEach(settle))
    .then(() => Promise.all(keeping));
  return {
    of: (graphId) => found.get(graphId),
    async waitFor(graphId, maxWaitMs) {
      if (maxWaitMs > 0 && pending.has(graphId)) {
        // Only the deadline and the end of reading end the wait; both are expected.
        await once(settled, `graph ${graphId}`, { signal: AbortSignal.timeout(maxWaitMs) }).catch(() => undefined);
      }
      return found.get(graphId);
    },
    async stop() {
      stopped = true;
      for (const graphId of pending) settle(graphId);
      child?.kill();
      await done;
    },
  };
}

async function readKept(folder: string, sources: readonly GraphSource[]): Promise<Record<string, KeptTypes>> {
  const kept: Record<string, KeptTypes> = {};
  for (const source of sources) {
    const found = await readKeptTypes(folder, source);
    if (found !== undefined) kept[source.graphId] = found;
  }
  return kept;
}

/** Whether a graph knows its schemas at run time; many have no config schema. */
export function isComplete({ input_schema, output_schema, state_schema }: GraphSchemas): boolean {
  return input_schema !== null && output_schema !== null && state_schema !== null;
}

async function knowsItsSchemas(pool: Pick<WorkerPool, 'ask'>, graphId: string): Promise<boolean> {
  try {
    const known: GraphSchemas = JSON.parse(await pool.ask({ kind: 'schemas', graphId, config: {} }));
    return isComplete(known);
  } catch {
    // A function that makes no graph without a config may still have types.
    return false;
  }
}

function startProcess(
  { heapMegabytes, accounts }: TypesOptions,
  hear: (message: FromTypesProcess) => void,
  onGone: (end: ChildEnd) => void,
): WorkerChild {
  const fromSource = import.meta.url.endsWith('.ts');
  const program = fileURLToPath(new URL(`./types-process.${fromSource ? 'ts' : 'js'}`, import.meta.url));
  const tsx = () => pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href;
  return new WorkerChild({
    program,
    environment: {},
    accounts,
    execArgv: [`--max-old-space-size=${heapMegabytes}`, ...(fromSource ? ['--import', tsx()] : [])],
    limits: { ...limitsOfWorker(0), bodyBytes: 0 },
    onFrame: (frame) => hear(decodeTypes(frame)),
    onGone,
  });
}

const anyJson = Type.Record(Type.String(), Type.Unknown());
const schemas = Type.Object({
  input_schema: Type.Union([anyJson, Type.Null()]),
  output_schema: Type.Union([anyJson, Type.Null()]),
  state_schema: Type.Union([anyJson, Type.Null()]),
  config_schema: Type.Union([anyJson, Type.Null()]),
  context_schema: Type.Union([anyJson, Type.Null()]),
});
const graphId = Type.String();
const fromProcess = Compile(
  Type.Union([
    Type.Object({ kind: Type.Literal('reading'), graphId }),
    Type.Object({
      kind: Type.Literal('read'),
      graphId,
      typed: Type.Object({ schemas, subgraphs: Type.Record(Type.String(), schemas) }),
      files: Type.Optional(Type.Record(Type.String(), Type.String())),
    }),
    Type.Object({ kind: Type.Literal('unread'), graphId, reason: Type.String() }),
  ]),
);

/** The compiler is code of the project, so that anything may come. @throws WORKER_PROTOCOL_VIOLATED */
function decodeTypes({ head }: Frame): FromTypesProcess {
  requireJson(head);
  const message: unknown = JSON.parse(head.toString('utf8'));
  if (!fromProcess.Check(message)) throw violation('a message of another form');
  return message as FromTypesProcess;
}
