/**
 * The pool of worker processes that run graph code, and the scheduling of runs on them.
 *
 * Invariant: a worker executes at most `runsPerWorker` runs, plus a quarter of this number in extra slots. An exclusive
 * run (`alone`) shares its worker with no other run. The parent process keeps a record of each run, which does not
 * depend on the worker.
 *
 *   1. The pool starts one query worker and `workers` run workers at the same time. It is open when all of them have
 *      imported every graph.
 *   2. A run goes to the run worker with the fewest runs. An exclusive run goes to a clean worker, which has no runs
 *      and no code of earlier runs; if none is free, the pool starts a temporary worker, at most `workers` of them, and
 *      stops it afterwards.
 *   3. A worker that exits is restarted (`worker-handle.ts`). If it ended while it imported a graph, that graph is
 *      marked as unusable and is not imported again.
 *   4. `close` waits for the active runs, then kills the workers; the remaining runs are `lost` with cause `external`.
 */
import { runlakeError } from '../../../../infra/errors/runlake-error.ts';
import type { Logger } from '../../../../infra/telemetry/logger.ts';
import { poll } from '../../../../infra/timeouts/poll.ts';
import type { GraphNodes } from '../../graphs/graph-nodes.ts';
import type { GraphsFile } from '../../graphs/graphs-file.ts';
import { findUntestedLibraries, testedLibraryVersions } from '../../graphs/load-graph.ts';
import type { ChildRunBatch } from '../../traces/trace-order.ts';
import { minEventLimitBytes } from '../message-codec.ts';
import type { Chunk, GraphRequest, RunJob } from '../messages.ts';
import { toRunlakeError } from '../serialized-error.ts';
import { QueryWorkerHandle } from './query-worker-handle.ts';
import { RunSlot } from './run-slot.ts';
import { RunWorkerHandle } from './run-worker-handle.ts';
import type { WorkerExit, WorkerOptions } from './worker-handle.ts';

export interface WorkerPoolOptions {
  readonly file: GraphsFile;
  /** Number of run workers. If it is 0, this process executes no runs. */
  readonly workers: number;
  /** Whether to start a query worker. Default: true. */
  readonly runsQueries?: boolean;
  readonly runsPerWorker: number;
  /** Postgres connection for workers. If absent, each worker keeps state in its own memory. */
  readonly database?: { readonly url: string; readonly authorities?: readonly string[] };
  /** Environment variables that graph code may read; `env` of the langgraph.json overrides them. */
  readonly environment: Readonly<Record<string, string>>;
  readonly accounts?: WorkerOptions['accounts'];
  /** URL of this agent server, for calls from project code. */
  readonly serverUrl?: string | undefined;
  readonly maxEventBytes: number;
  /** Maximum bytes of events that a worker buffers while send windows are full. */
  readonly maxBufferedBytes: number;
  readonly heartbeatTimeoutMs: number;
  readonly logger: Logger;
  /** Heap limit of a worker. If absent, the default limit of Node applies. */
  readonly heapMegabytes?: number | undefined;
  /** Default: 120,000 ms. */
  readonly loadTimeoutMs?: number;
  /** Maximum time for a query. Default: 30,000 ms. */
  readonly queryTimeoutMs?: number;
}

export interface WorkerPool {
  /** Number of runs that can start now. */
  readonly freeSlots: number;
  /** Number of additional runs that can start. They are reserved for callers that use less than their fair share. */
  readonly extraSlots: number;
  /** Registers a listener that is called when slots are free after a change. */
  onFree(listener: () => void): void;
  /**
   * Starts one attempt. `take` receives its chunks in order, in batches; the next batch follows when `take` has
   * resolved. The send window bounds the buffered bytes, so a graph cannot stream faster than the log accepts events.
   * If `take` rejects, the run is cancelled. `onChildRuns` receives the child runs if `job.trace` is set; the last
   * child runs arrive before the outcome.
   */
  start(
    job: RunJob,
    take: (chunks: readonly Chunk[]) => Promise<void>,
    onChildRuns?: (traced: ChildRunBatch) => void,
  ): Pick<RunSlot, 'outcome' | 'cancel' | 'nodes'>;
  /**
   * Answers a query in a separate worker, so that it never waits behind runs. Resolves with JSON text.
   *
   * @throws GRAPH_WORKER_BUSY after two seconds in the queue, GRAPH_UNUSABLE, GRAPH_FAILED, STORE_EMBEDDER_UNUSABLE,
   *   and errors of the request itself, such as CHECKPOINT_NOT_FOUND.
   */
  query(request: GraphRequest): Promise<string>;
  /**
   * Waits up to `drainMs` for active runs. The remaining runs end as `lost` with cause `external`; none is cancelled.
   */
  close(drainMs: number): Promise<void>;
}

export interface OpenWorkerPool extends WorkerPool {
  /** Reasons why graphs are unusable, by graph id. */
  readonly loadErrors: ReadonlyMap<string, string>;
  /**
   * Node names by graph id, for the graphs whose nodes are known before they run. Empty if there is no query worker.
   */
  readonly nodes: ReadonlyMap<string, GraphNodes>;
}

const sendWindowBytes = 4 * 1024 * 1024;
/**
 * Maximum size of an event's mode, name and namespace in bytes. These count towards the cost of the event in the send
 * window.
 */
const maxNameBytes = 16 * 1024;
const heartbeatMs = 1_000;
/** Maximum number of consecutive processes that may exit before they are ready, if no graph caused the exit. */
const maxFailedStarts = 3;
const stopReason = 'the agent server stops';

/**
 * Starts the workers and resolves when all of them are ready. If a graph is unusable, the pool opens without it, and
 * `loadErrors` contains the reason.
 *
 * @throws STORE_EMBEDDER_UNUSABLE, or GRAPH_WORKER_START_FAILED if the processes do not become ready for another
 *   reason.
 */
export async function openWorkerPool(options: WorkerPoolOptions): Promise<OpenWorkerPool> {
  const { file, workers, runsPerWorker, runsQueries = true, logger } = options;
  const maxRunsPerWorker = runsPerWorker + Math.floor(runsPerWorker / 4);
  const processes = workers + (runsQueries ? 1 : 0);
  const loadErrors = new Map<string, string>();
  const nodes = new Map<string, GraphNodes>();
  const runWorkers = new Set<RunWorkerHandle>();
  const temporaryWorkers = new Set<RunWorkerHandle>();
  const pending = new Set<RunSlot>();
  const listeners: (() => void)[] = [];
  const stopped: Promise<void>[] = [];
  let isClosing = false;
  let lastKey = 0;
  let failedStarts = 0;
  let readyOnce = 0;
  let opened!: () => void;
  let failed!: (error: unknown) => void;
  const open = new Promise<void>((resolve, reject) => {
    opened = resolve;
    failed = reject;
  });

  const workerOptions = (): WorkerOptions => ({
    setup: {
      graphs: file.graphs.filter(({ graphId }) => !loadErrors.has(graphId)),
      loadErrors: Object.fromEntries(loadErrors),
      store: { ...file.store, folder: file.folder },
      ...(options.database && { database: options.database }),
      ...(options.serverUrl !== undefined && { serverUrl: options.serverUrl }),
      // A run writes only once or twice, and each Postgres connection costs a server process with its own caches.
      maxConnections: Math.max(4, Math.min(Math.ceil(runsPerWorker / 4), 16)),
      maxEventBytes: options.maxEventBytes,
      windowBytes: sendWindowBytes,
      maxBufferedBytes: options.maxBufferedBytes,
      heartbeatMs: Math.min(heartbeatMs, options.heartbeatTimeoutMs / 4),
    },
    folder: file.folder,
    environment: { ...options.environment, ...file.env },
    accounts: options.accounts,
    heapMegabytes: options.heapMegabytes,
    heartbeatTimeoutMs: options.heartbeatTimeoutMs,
    loadTimeoutMs: options.loadTimeoutMs ?? 120_000,
    onLine: (line) => logger.info({ line }, 'graph code wrote'),
  });

  const createHooks = () => {
    let first = true;
    return {
      onReady: (newErrors: Readonly<Record<string, string>>, newNodes: Readonly<Record<string, GraphNodes>> = {}) => {
        for (const [graphId, reason] of Object.entries(newErrors)) loadErrors.set(graphId, reason);
        for (const [graphId, names] of Object.entries(newNodes)) nodes.set(graphId, names);
        failedStarts = 0;
        if (!first) return;
        first = false;
        readyOnce += 1;
        if (readyOnce === processes) opened();
      },
      onExit: ({ reason, whileLoading, cause, unusable }: WorkerExit) => {
        if (isClosing) return;
        logger.warn({ reason, graph: whileLoading }, 'worker process ended');
        if (first && unusable !== undefined) failed(toRunlakeError(unusable));
        else if (whileLoading !== undefined && cause === 'worker') {
          if (!loadErrors.has(whileLoading))
            loadErrors.set(whileLoading, `its module ended the process while it was imported: ${reason}`);
        } else if (first) {
          failedStarts += 1;
          if (failedStarts >= maxFailedStarts) failed(runlakeError('GRAPH_WORKER_START_FAILED', { reason }));
        }
      },
    };
  };

  const queryWorker = runsQueries
    ? new QueryWorkerHandle(workerOptions, createHooks(), options.queryTimeoutMs)
    : undefined;
  for (let started = 0; started < workers; started += 1) {
    runWorkers.add(new RunWorkerHandle(workerOptions, { ...createHooks(), onChange: schedule }));
  }

  function findWorker(slot: RunSlot): RunWorkerHandle | undefined {
    return [...runWorkers, ...temporaryWorkers].find((worker) => worker.has(slot));
  }

  function schedule(): void {
    if (isClosing) return;
    for (const slot of pending) {
      const worker = slot.job.alone ? findCleanWorker() : findLeastLoaded();
      if (worker === undefined) continue;
      pending.delete(slot);
      worker.put(slot);
    }
    const waitingAlone = [...pending].filter((slot) => slot.job.alone).length;
    for (const worker of temporaryWorkers) {
      if (worker.ready && worker.size === 0 && (waitingAlone === 0 || !worker.isClean)) retire(worker);
    }
    const starting = [...temporaryWorkers].filter((worker) => !worker.ready).length;
    if (waitingAlone > starting && temporaryWorkers.size < workers) {
      temporaryWorkers.add(
        new RunWorkerHandle(workerOptions, { onReady: () => undefined, onExit: () => undefined, onChange: schedule }),
      );
    }
    if (countFreeSlots() > 0) for (const listener of listeners) listener();
  }

  function retire(worker: RunWorkerHandle): void {
    temporaryWorkers.delete(worker);
    stopped.push(worker.stop('a temporary worker is no longer needed'));
  }

  function findCleanWorker(): RunWorkerHandle | undefined {
    return [...temporaryWorkers, ...runWorkers].find((worker) => worker.isClean && worker.countFreeSlots(1) === 1);
  }

  function findLeastLoaded(): RunWorkerHandle | undefined {
    const [leastLoaded] = [...runWorkers]
      .filter((worker) => worker.countFreeSlots(maxRunsPerWorker) > 0)
      .sort((a, b) => a.size - b.size);
    return leastLoaded;
  }

  function countFreeSlots(perWorker = runsPerWorker): number {
    if (isClosing) return 0;
    const freeSlots = [...runWorkers].reduce((sum, worker) => sum + worker.countFreeSlots(perWorker), 0);
    return Math.max(0, freeSlots - pending.size);
  }

  function cancel(slot: RunSlot): void {
    if (pending.delete(slot)) void slot.end({ kind: 'cancelled' });
    else findWorker(slot)?.stopRun(slot, 'cancelled');
  }

  async function close(drainMs: number): Promise<void> {
    isClosing = true;
    const message = `The worker process of the run ended: ${stopReason}.`;
    for (const slot of pending) void slot.end({ kind: 'lost', cause: 'external', message });
    pending.clear();
    const all = [...runWorkers, ...temporaryWorkers];
    await poll(() => all.every((worker) => worker.size === 0), { intervalMs: 20, timeoutMs: drainMs });
    await Promise.all([queryWorker?.close(), ...all.map((worker) => worker.stop(stopReason)), ...stopped]);
  }

  try {
    await open;
  } catch (error) {
    await close(0);
    throw error;
  }
  for (const [graph, reason] of loadErrors) logger.error({ graph, reason }, 'graph is unusable');

  for (const copy of await findUntestedLibraries(file)) {
    logger.warn(copy, `graphs load an untested version of @langchain/langgraph; tested: ${testedLibraryVersions}`);
  }

  return {
    loadErrors,
    nodes,
    get freeSlots() {
      return countFreeSlots();
    },
    get extraSlots() {
      return countFreeSlots(maxRunsPerWorker) - countFreeSlots();
    },
    onFree: (listener) => void listeners.push(listener),
    start(job, take, onChildRuns) {
      lastKey += 1;
      const slot = new RunSlot(
        lastKey,
        job,
        { take, onChildRuns },
        {
          // A worker sends until the window is full, so its last event may exceed the window.
          limitBytes: sendWindowBytes + Math.max(options.maxEventBytes, minEventLimitBytes) + maxNameBytes,
          acknowledge: (each, bytes) => findWorker(each)?.acknowledge(each, bytes),
          cancel,
        },
      );
      if (isClosing) {
        void slot.end({ kind: 'lost', cause: 'external', message: stopReason });
      } else {
        pending.add(slot);
        schedule();
      }
      return slot;
    },
    async query(request) {
      if (queryWorker === undefined) throw runlakeError('INTERNAL', {}, { cause: 'this process has no query worker' });
      return queryWorker.query(request);
    },
    close,
  };
}
