import { isRunlakeError } from '../../../../infra/errors/runlake-error.ts';
import { raceWithAbort, timedOut, withTimeout } from '../../../../infra/timeouts/with-timeout.ts';
import { buildThreadKey } from '../../checkpoints/copy-checkpoints.ts';
import { isLeaseLost } from '../../checkpoints/leased-saver.ts';
import { type CompiledGraph, type RunState, readStoredState, toStreamedState } from '../../graphs/compiled-graph.ts';
import type { LoadedGraph } from '../../graphs/load-graph.ts';
import type { StoreFactory } from '../../store/agent-store.ts';
import { createWarningChunk, missingValuesMode } from '../../streams/stream-types.ts';
import type { Chunk, RunOutcome } from '../messages.ts';
import { describeProjectError } from '../serialized-error.ts';
import { beginAttempt, buildCheckpointMetadata, buildConfig, type Job } from './begin-attempt.ts';
import { encodeEventChunk } from './event-chunk.ts';
import type { EventLoopTurn } from './event-loop-turn.ts';
import type { SendWindow } from './send-window.ts';
import { streamGraph } from './stream-graph.ts';
import { executeInGroups } from './task-groups.ts';
import { type SaverFactory, ThreadSaver } from './thread-saver.ts';

/**
 * Time for which the saver collects checkpoint writes into a batch. A crash loses at most the writes of this period.
 */
const writeBatchMs = 10;

/** Maximum time to read the state of a stopped run. The parent process waits five seconds in all for its end. */
const stateTimeoutMs = 2_000;

export interface JobDeps {
  readonly graph: LoadedGraph;
  /** LangChain callback handlers that receive all child runs. */
  readonly handlers: readonly object[];
  readonly saverFor: SaverFactory;
  readonly storeFor: StoreFactory;
  readonly maxEventBytes: number;
  readonly events: SendWindow;
  /**
   * Controller that stops the run when it is aborted. The abort reason is the kind of the outcome, or the error with
   * which the run fails.
   */
  readonly stop: AbortController;
  readonly turn: EventLoopTurn;
}

/** The state that a stopped or failed run leaves. */
type LeftState = Pick<RunState, 'values' | 'interrupts'>;

/** The tag that LangGraph gives to the run of a node, and to no run inside the node. */
const nodeTag = 'graph:step:';
/** The tag of the node that copies the input of a graph to its first nodes. */
const hiddenTag = 'langsmith:hidden';

/**
 * LangChain callback handler that counts the nodes that a graph and its subgraphs execute. A node counts when it has
 * returned or has interrupted the graph; a node that threw does not count, nor do its failed retries.
 */
export class NodeCounter {
  readonly name = 'executed_nodes';
  readonly lc_serializable = false;
  /** Makes LangChain call the handler synchronously, so that the count is complete when the graph has ended. */
  readonly awaitHandlers = true;
  readonly raiseError = false;
  readonly ignoreLLM = true;
  readonly ignoreChain = false;
  readonly ignoreAgent = true;
  readonly ignoreRetriever = true;
  readonly ignoreCustomEvent = true;
  count = 0;

  copy(): this {
    return this;
  }

  handleChainEnd(_outputs: unknown, _id: string, _parentId?: string, tags?: readonly string[]): void {
    if (tags?.some((tag) => tag.startsWith(nodeTag)) && !tags.includes(hiddenTag)) this.count += 1;
  }

  handleChainError(error: unknown, id: string, parentId?: string, tags?: readonly string[]): void {
    if (error instanceof Error && error.name === 'GraphInterrupt') this.handleChainEnd(undefined, id, parentId, tags);
  }
}

/**
 * Executes one attempt in this process. Never rejects. Does not wait for code of the project after an abort. If a graph
 * continues to run after its abort, the database refuses its writes, because the lease ends with the run.
 */
export async function executeJob(job: Job, deps: JobDeps): Promise<RunOutcome> {
  const { saverFor, events, stop } = deps;
  const { signal } = stop;
  const { deploymentId, threadId, runId, attempt, graphId, assistantId, leaseToken, start } = job;
  const onFailure = (error: unknown) => {
    if (isCausedByLostLease(error)) stop.abort('fenced');
  };
  // With every durability except `sync`, LangGraph continues before its state is written.
  const early = job.kwargs.durability === 'sync' ? undefined : { batchDelayMs: writeBatchMs, onFailure };
  const threadKey = buildThreadKey(deploymentId, threadId);
  const storedSaver = saverFor(
    { leaseToken, threadKey, runId, attempt, graphId, assistantId, metadata: buildCheckpointMetadata(job) },
    early,
  );
  const startsWithoutState = start.kind === 'input' && start.checkpoint === 'none';
  const saver = new ThreadSaver(storedSaver, deploymentId, { blank: startsWithoutState, onFailure });
  let graph: CompiledGraph | undefined;
  let states: unknown;
  /** The warning in place of the last values of the root graph, if the stream does not contain these. */
  let missingValues: Chunk | undefined;
  try {
    const config = buildConfig(job);
    graph = await raceWithAbort(deps.graph.instance(config), signal);
    executeInGroups(graph);
    graph.checkpointer ??= saver;
    graph.store ??= deps.storeFor(deploymentId);
    const warn = (message: string) => events.put(createWarningChunk(message));
    const begun = await raceWithAbort(beginAttempt(job, { loaded: deps.graph, graph, saver, config, warn }), signal);
    if (begun === undefined)
      return { kind: 'finished', ...(await raceWithAbort(readStoredState(graph, threadId), signal)) };
    const request = {
      modes: job.kwargs.stream_mode,
      subgraphs: job.kwargs.subgraphs,
      runId,
      options: { ...begun.options, signal },
      turn: () => deps.turn.yieldIfDue(),
      handlers: deps.handlers,
    };
    await streamGraph(graph, begun.input, request, (streamed) => {
      if (streamed.mode === '') {
        states = streamed.data;
        return;
      }
      signal.throwIfAborted();
      const chunk = encodeEventChunk(streamed, deps.maxEventBytes);
      if (streamed.mode === 'values' && streamed.namespace === '')
        missingValues = chunk.mode === 'values' ? undefined : chunk;
      events.put(chunk);
    });
    // Clients would take the values before for the result of the run.
    if (missingValues !== undefined) events.put({ ...missingValues, mode: missingValuesMode, event: 'error' });
    await storedSaver.settled?.();
    await events.waitUntilEmpty();
    if (signal.aborted) return toAbortOutcome(signal.reason, await readLeftState());
    const state = graph.checkpointer
      ? await raceWithAbort(readStoredState(graph, threadId), signal)
      : toStreamedState(states);
    return { kind: 'finished', ...state };
  } catch (error) {
    // If state could not be written, report that error, because it is the cause of the graph's error.
    const writeError = await storedSaver.settled?.().then(
      () => undefined,
      (reason: unknown) => reason,
    );
    const is = (matches: (each: unknown) => boolean) => hasCause(error, matches) || hasCause(writeError, matches);
    if (is(isLeaseLost)) return { kind: 'fenced' };
    if (is(isDatabaseUnavailable)) return { kind: 'lost', cause: 'external', message: databaseUnavailableMessage };
    if (signal.aborted) return toAbortOutcome(signal.reason, await readLeftState());
    // Send all buffered events before reporting the failure.
    await events.waitUntilEmpty().catch(() => undefined);
    if (signal.aborted) return toAbortOutcome(signal.reason, await readLeftState());
    return { kind: 'failed', ...describeError(error), ...(await readLeftState()) };
  }

  /** Reads the state that the run leaves. Returns undefined if it cannot be read in time. */
  async function readLeftState(): Promise<LeftState | undefined> {
    if (!graph?.checkpointer || signal.reason === 'fenced') return undefined;
    const reading = readStoredState(graph, threadId);
    const limited = signal.aborted ? withTimeout(reading, stateTimeoutMs) : raceWithAbort(reading, signal);
    const state = await limited.catch(() => undefined);
    return state === timedOut || state === undefined
      ? undefined
      : { values: state.values, interrupts: state.interrupts };
  }
}

/**
 * Returns the outcome of an aborted run as the parent process expects it (`RunOutcome`). If the abort reason is an
 * error, for example STREAM_BUFFER_FULL, the run fails.
 */
function toAbortOutcome(reason: unknown, state: LeftState | undefined): RunOutcome {
  if (reason instanceof Error) return { kind: 'failed', ...describeError(reason), ...state };
  const kind = reason as 'cancelled' | 'timeout' | 'fenced';
  if (kind === 'fenced' || state === undefined) return { kind };
  return { kind: 'failed', error: kind, message: 'The run was stopped.', ...state };
}

/**
 * Whether the error itself, its cause or one of its aggregated errors matches. LangGraph wraps errors when several
 * tasks fail.
 */
function hasCause(error: unknown, matches: (each: unknown) => boolean, depth = 0): boolean {
  try {
    if (!(error instanceof Error) || depth > 5) return false;
    if (matches(error)) return true;
    const inner = error instanceof AggregateError ? error.errors : [];
    return [error.cause, ...inner].some((each) => hasCause(each, matches, depth + 1));
  } catch {
    // Reading a value that project code threw can throw as well.
    return false;
  }
}

const isCausedByLostLease = (error: unknown) => hasCause(error, isLeaseLost);

/**
 * Whether a write failed because the database was unavailable. In this case the graph is not the cause, so the run is
 * requeued.
 */
const isDatabaseUnavailable = (error: unknown) => isRunlakeError(error) && error.code === 'DATABASE_UNAVAILABLE';
const databaseUnavailableMessage = 'The database for the state of the run was unavailable for too long.';

function describeError(error: unknown): { readonly error: string; readonly message: string } {
  return isRunlakeError(error)
    ? { error: toClassName(error.code), message: error.message }
    : describeProjectError(error);
}

/** Converts an error code to a class name: `CHECKPOINT_NOT_FOUND` becomes `CheckpointNotFound`. */
function toClassName(code: string): string {
  return code.toLowerCase().replace(/(?:^|_)(\w)/g, (_, character: string) => character.toUpperCase());
}
