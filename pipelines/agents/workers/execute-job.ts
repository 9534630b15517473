import { fault, isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import { isLeaseLost } from '../checkpoints/leased-saver.ts';
import type { CompiledGraph } from '../graphs/compiled-graph.ts';
import { goesToEnd, nodesOf, requireNodes } from '../graphs/graph-nodes.ts';
import type { LoadedGraph } from '../graphs/load-graph.ts';
import { eventChunk } from './event-chunk.ts';
import type { EventLoopTurn } from './event-loop-turn.ts';
import { goToEnd } from './go-to-end.ts';
import { libraryCommand, libraryConfig } from './run-config.ts';
import type { RunCredit } from './run-credit.ts';
import type { SaverFor } from './saver-for.ts';
import { keptState, streamedState } from './state-of-run.ts';
import { stoppedAtHead, stoppedWithin } from './stopped-at-head.ts';
import type { StoreFor } from './store-for.ts';
import { streamGraph } from './stream-graph.ts';
import { ThreadSaver } from './thread-saver.ts';
import type { ToWorker } from './worker-messages.ts';
import type { Chunk, RunOutcome } from './worker-pool.ts';

/** Steps of a quick graph are written together; a crash within this time costs a run that much of its state. */
const gatherMs = 10;

type Job = Extract<ToWorker, { kind: 'run' }>['job'];

export interface JobPorts {
  readonly graph: LoadedGraph;
  /** Sees what runs inside. */
  readonly tracer: object | undefined;
  readonly saverFor: SaverFor;
  readonly storeFor: StoreFor;
  readonly maxEventBytes: number;
  readonly credit: RunCredit;
  /** Aborted with the outcome as its reason, when the run is to stop. */
  readonly stop: AbortController;
  readonly send: (chunk: Chunk) => void;
  readonly turn: EventLoopTurn;
}

/** Runs one attempt in this process. Never rejects. What a graph does after its abort writes nothing: the lease ends with the run. */
export async function executeJob(job: Job, ports: JobPorts): Promise<RunOutcome> {
  const { saverFor, credit, stop } = ports;
  const { signal } = stop;
  const { organizationId, threadId, runId, attempt, graphId, assistantId, leaseToken, start } = job;
  const onFailure = (error: unknown) => {
    if (hidesLostLease(error)) stop.abort('fenced');
  };
  // With any other durability the library goes on before its state is written.
  const early = job.kwargs.durability === 'sync' ? undefined : { gatherMs, onFailure };
  const kept = saverFor({ leaseToken, runId, attempt, graphId, assistantId }, early);
  const blank = start.kind === 'input' && start.checkpoint === 'none';
  const saver = new ThreadSaver(kept, organizationId, { blank, onFailure });
  let graph: CompiledGraph | undefined;
  let states: unknown;
  try {
    const config = configOf(job);
    graph = await ports.graph.instance(config);
    graph.checkpointer ??= saver;
    graph.store ??= ports.storeFor(organizationId);
    checkNodes(job, ports.graph, graph);
    await checkPlace(job, saver);
    if (start.kind === 'continue' && graph.checkpointer === saver && (await isToStopHere(job, graph, saver)))
      return { kind: 'finished', ...(await keptState(graph, threadId)) };
    if (attempt > 1 && !blank && graph.checkpointer === saver)
      saver.hold(await stoppedWithin(graph, saver, runId, placeOf(job)));
    const ends = goesToEnd(job.kwargs.command);
    if (ends) await goToEnd(graph, config, start.kind === 'continue' ? undefined : job.kwargs.command?.update);
    const goesOn = ends || (await isAnswered(job, saver));
    const going = goesOn ? { ...job, start: { kind: 'continue' } as const } : job;
    const request = {
      modes: job.kwargs.stream_mode,
      subgraphs: job.kwargs.subgraphs,
      runId,
      options: { ...(goesOn ? configOf(going) : config), signal, ...stops(job) },
      handler: ports.tracer,
    };
    const send = (chunk: Chunk) => {
      signal.throwIfAborted();
      credit.sent(chunk.data.byteLength);
      ports.send(chunk);
      return ports.turn.ifLong();
    };
    await streamGraph(graph, inputOf(going), request, (streamed) => {
      if (streamed.mode === '') {
        states = streamed.data;
        return;
      }
      const chunk = eventChunk(streamed, ports.maxEventBytes);
      const room = credit.room();
      return room === undefined ? send(chunk) : room.then(() => send(chunk));
    });
    await kept.settled?.();
    if (signal.aborted) return { kind: signal.reason };
    const state = graph.checkpointer ? await keptState(graph, threadId) : streamedState(states);
    return { kind: 'finished', ...state };
  } catch (error) {
    // State that could not be written says more than what it made the graph throw.
    const unwritten = await kept.settled?.().then(
      () => undefined,
      (reason: unknown) => reason,
    );
    const is = (sought: (each: unknown) => boolean) => hides(error, sought) || hides(unwritten, sought);
    if (is(isLeaseLost)) return { kind: 'fenced' };
    if (is(isDatabaseAway)) return { kind: 'lost', blame: 'outside', message: databaseAway };
    if (signal.aborted) return { kind: signal.reason };
    const state = graph?.checkpointer ? await keptState(graph, threadId).catch(() => undefined) : undefined;
    return { kind: 'failed', ...describe(error), ...(state && { values: state.values }) };
  }
}

function configOf({ kwargs, start, threadId, runId, graphId, assistantId, attempt }: Job) {
  const from = start.kind === 'input' && start.checkpoint !== 'none' ? start.checkpoint : undefined;
  const ids = { run_id: runId, graph_id: graphId, assistant_id: assistantId };
  const config = libraryConfig(kwargs.config, {
    threadId,
    ...(from !== undefined && { checkpoint: from }),
    configurable: ids,
  });
  return {
    ...config,
    metadata: { ...(config.metadata as object | undefined), ...ids, thread_id: threadId, run_attempt: attempt },
    ...(kwargs.context !== undefined && kwargs.context !== null && { context: kwargs.context }),
  };
}

function inputOf({ kwargs, start }: Job): unknown {
  if (start.kind === 'continue') return null;
  if (kwargs.command !== undefined && kwargs.command !== null) return libraryCommand(kwargs.command);
  return kwargs.input ?? null;
}

function stops({ kwargs }: Job): object {
  return {
    durability: kwargs.durability,
    ...(kwargs.interrupt_before !== undefined && { interruptBefore: kwargs.interrupt_before }),
    ...(kwargs.interrupt_after !== undefined && { interruptAfter: kwargs.interrupt_after }),
  };
}

function isToStopHere({ kwargs, threadId }: Job, graph: CompiledGraph, saver: ThreadSaver): Promise<boolean> {
  return stoppedAtHead(graph, saver, threadId, { before: kwargs.interrupt_before, after: kwargs.interrupt_after });
}

/** Who made the run may not have known the nodes. @throws GRAPH_NODE_UNKNOWN */
function checkNodes({ kwargs, graphId }: Job, loaded: LoadedGraph, graph: CompiledGraph): void {
  const { interrupt_before, interrupt_after, command } = kwargs;
  if (interrupt_before === undefined && interrupt_after === undefined && command === undefined) return;
  const nodes = loaded.nodes ?? nodesOf(graph);
  if (nodes !== undefined) requireNodes(graphId, nodes, kwargs);
}

/**
 * An earlier attempt may have got as far as the next question without a checkpoint on the thread itself, in a graph within or in one
 * node: given once more, the answer would be taken for that to the next one. Of several answers by the ids of their questions each
 * is given again, since some may not have been taken.
 */
async function isAnswered({ attempt, start, kwargs, threadId }: Job, saver: ThreadSaver): Promise<boolean> {
  const resume = kwargs.command?.resume ?? undefined;
  if (attempt === 1 || start.kind === 'continue' || resume === undefined) return false;
  const names = typeof resume === 'object' ? Object.keys(resume) : [];
  if (names.length > 1 && names.every((name) => /^[0-9a-f]{32}$/.test(name))) return false;
  return saver.leaveOutAnswer(threadId);
}

/** Where the attempt begins. */
function placeOf({ start, threadId }: Job) {
  const { checkpoint_id } = start.kind === 'input' && typeof start.checkpoint === 'object' ? start.checkpoint : {};
  return { configurable: { thread_id: threadId, ...(checkpoint_id !== undefined && { checkpoint_id }) } };
}

/** The library starts from nothing, without a word, where the checkpoint that it is given does not exist. */
async function checkPlace({ start, threadId }: Job, saver: ThreadSaver): Promise<void> {
  const from = start.kind === 'input' && start.checkpoint !== 'none' ? start.checkpoint : undefined;
  if (from?.checkpoint_id === undefined) return;
  const { checkpoint_id, checkpoint_ns = '' } = from;
  const found = await saver.getTuple({ configurable: { thread_id: threadId, checkpoint_ns, checkpoint_id } });
  if (found !== undefined) return;
  throw fault('CHECKPOINT_NOT_FOUND', { thread: threadId, checkpoint: checkpoint_id });
}

/** The library wraps what happens while several tasks end. */
function hides(error: unknown, sought: (each: unknown) => boolean, depth = 0): boolean {
  if (!(error instanceof Error) || depth > 5) return false;
  if (sought(error)) return true;
  const inner = error instanceof AggregateError ? error.errors : [];
  return [error.cause, ...inner].some((each) => hides(each, sought, depth + 1));
}

const hidesLostLease = (error: unknown) => hides(error, isLeaseLost);

/** That state could not be stored is no fault of the graph: its run begins another attempt. */
const isDatabaseAway = (error: unknown) => isRunlakeError(error) && error.code === 'DATABASE_UNAVAILABLE';
const databaseAway = 'The database that keeps its state was away for too long.';

/** It goes into the last event, the rows and the trace, which have to take it. */
const longestMessage = 64 * 1024;

function describe(error: unknown): { readonly error: string; readonly message: string } {
  if (isRunlakeError(error)) return { error: nameOf(error.code), message: error.message };
  if (error instanceof Error) return { error: shortened(error.name), message: shortened(error.message) };
  return { error: 'Error', message: shortened(error) };
}

/** Graph code throws anything, also what has no text. */
function shortened(value: unknown): string {
  let text = 'The graph threw something that has no text.';
  try {
    text = String(value);
  } catch {
    // It stays at that.
  }
  if (text.length <= longestMessage) return text;
  return `${text.slice(0, longestMessage)} … (${text.length} characters in all)`;
}

/** As classes of errors are named: `CHECKPOINT_NOT_FOUND` is `CheckpointNotFound`. */
function nameOf(code: string): string {
  return code.toLowerCase().replace(/(?:^|_)(\w)/g, (_, letter: string) => letter.toUpperCase());
}
