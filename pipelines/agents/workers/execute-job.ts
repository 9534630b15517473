import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import { isLeaseLost } from '../checkpoints/leased-saver.ts';
import type { CompiledGraph } from '../graphs/compiled-graph.ts';
import type { LoadedGraph } from '../graphs/load-graph.ts';
import { beginAttempt, checkpointMetadata, configOf, type Job } from './begin-attempt.ts';
import { eventChunk, warningChunk } from './event-chunk.ts';
import type { EventLoopTurn } from './event-loop-turn.ts';
import type { SaverFor } from './saver-for.ts';
import type { SendWindow } from './send-window.ts';
import { keptState, streamedState } from './state-of-run.ts';
import type { StoreFor } from './store-for.ts';
import { streamGraph } from './stream-graph.ts';
import { ThreadSaver } from './thread-saver.ts';
import type { RunOutcome } from './worker-pool.ts';

/** Steps of a quick graph are written together; a crash within this time costs a run that much of its state. */
const gatherMs = 10;

export interface JobPorts {
  readonly graph: LoadedGraph;
  /** Sees what runs inside. */
  readonly tracer: object | undefined;
  readonly saverFor: SaverFor;
  readonly storeFor: StoreFor;
  readonly maxEventBytes: number;
  readonly events: SendWindow;
  /** Aborted with the kind of the outcome as its reason, when the run is to stop, or with an error that it fails with. */
  readonly stop: AbortController;
  readonly turn: EventLoopTurn;
}

/** Runs one attempt in this process. Never rejects. What a graph does after its abort writes nothing: the lease ends with the run. */
export async function executeJob(job: Job, ports: JobPorts): Promise<RunOutcome> {
  const { saverFor, events, stop } = ports;
  const { signal } = stop;
  const { deploymentId, threadId, runId, attempt, graphId, assistantId, leaseToken, start } = job;
  const onFailure = (error: unknown) => {
    if (hidesLostLease(error)) stop.abort('fenced');
  };
  // With any other durability the library goes on before its state is written.
  const early = job.kwargs.durability === 'sync' ? undefined : { gatherMs, onFailure };
  const kept = saverFor({ leaseToken, runId, attempt, graphId, assistantId, metadata: checkpointMetadata(job) }, early);
  const blank = start.kind === 'input' && start.checkpoint === 'none';
  const saver = new ThreadSaver(kept, deploymentId, { blank, onFailure });
  let graph: CompiledGraph | undefined;
  let states: unknown;
  try {
    const config = configOf(job);
    graph = await ports.graph.instance(config);
    graph.checkpointer ??= saver;
    graph.store ??= ports.storeFor(deploymentId);
    const warn = (message: string) => events.put(warningChunk(message));
    const begun = await beginAttempt(job, { loaded: ports.graph, graph, saver, config, warn });
    if (begun === undefined) return { kind: 'finished', ...(await keptState(graph, threadId)) };
    const request = {
      modes: job.kwargs.stream_mode,
      subgraphs: job.kwargs.subgraphs,
      runId,
      options: { ...begun.options, signal },
      turn: () => ports.turn.ifLong(),
      handler: ports.tracer,
    };
    await streamGraph(graph, begun.input, request, (streamed) => {
      if (streamed.mode === '') {
        states = streamed.data;
        return;
      }
      signal.throwIfAborted();
      events.put(eventChunk(streamed, ports.maxEventBytes));
    });
    await kept.settled?.();
    await events.empty();
    if (signal.aborted) return outcomeOfAbort(signal.reason);
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
    if (signal.aborted) return outcomeOfAbort(signal.reason);
    // What it streamed before it failed comes before its failure.
    await events.empty().catch(() => undefined);
    if (signal.aborted) return outcomeOfAbort(signal.reason);
    const state = graph?.checkpointer ? await keptState(graph, threadId).catch(() => undefined) : undefined;
    return { kind: 'failed', ...describe(error), ...(state && { values: state.values }) };
  }
}

/** An error of its own fails the run, such as too many events that wait. */
function outcomeOfAbort(reason: unknown): RunOutcome {
  if (reason instanceof Error) return { kind: 'failed', ...describe(reason) };
  return { kind: reason as 'cancelled' | 'timeout' | 'fenced' };
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
