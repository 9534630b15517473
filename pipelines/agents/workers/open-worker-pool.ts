/**
 * The pool of worker processes that run graph code, and the scheduling of runs on them.
 *
 * Invariant: a worker executes at most `runsPerWorker` runs, plus a quarter of this number in extra slots. An exclusive
 * run (`alone`) shares its worker with no other run. The parent process keeps a record of each run, which does not
 * depend on the worker.
 *
 *   1. The pool starts one query worker and `workers` run workers at the same time. It is open when all of them have
 *      imported every graph.
 *   2. A run goes to the run worker with the fewest runs. An exclusive run goes to a clean worker, which executes no
 *      runs and no code of earlier runs. If no clean worker is free, the pool starts a temporary worker for the run
 *      and stops it afterwards; there are at most `workers` temporary workers.
 *   3. A worker that exits is restarted (`graph-worker.ts`). If it exited while it imported a graph, that graph is
 *      marked as unusable and is not imported again.
 *   4. `close` waits for the active runs, then kills the workers; the remaining runs are `lost` with cause `external`.
 */
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import { poll } from '../../../infra/timeouts/poll.ts';
import type { GraphNodes } from '../graphs/graph-nodes.ts';
import type { GraphsFile } from '../graphs/graphs-file.ts';
import { findUntestedLibraries, testedLibraries } from '../graphs/load-graph.ts';
import type { GraphWorkerOptions, WorkerExit } from './graph-worker.ts';
import { minEventLimitBytes } from './message-codec.ts';
import { QueryWorker } from './query-worker.ts';
import { RunInPool, RunWorker } from './run-worker.ts';
import { toRunlakeError } from './serialized-error.ts';
import type { WorkerPool } from './worker-pool.ts';

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
  readonly accounts?: GraphWorkerOptions['accounts'];
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
}

export interface OpenWorkerPool extends WorkerPool {
  /** Reasons why graphs are unusable, by graph id. */
  readonly loadErrors: Readonly<Record<string, string>>;
  /**
   * Node names by graph id, for the graphs whose nodes are known before they run. Empty if there is no query worker.
   */
  readonly nodes: Readonly<Record<string, GraphNodes>>;
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
  const loadErrors: Record<string, string> = {};
  const nodes: Record<string, GraphNodes> = {};
  const runWorkers = new Set<RunWorker>();
  const temporaryWorkers = new Set<RunWorker>();
  const pending = new Set<RunInPool>();
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

  const workerOptions = (): Omit<GraphWorkerOptions, 'onMessage' | 'onExit'> => ({
    setup: {
      graphs: file.graphs.filter(({ graphId }) => loadErrors[graphId] === undefined),
      loadErrors: { ...loadErrors },
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
        Object.assign(loadErrors, newErrors);
        Object.assign(nodes, newNodes);
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
          loadErrors[whileLoading] ??= `its module ended the process while it was imported: ${reason}`;
        } else if (first) {
          failedStarts += 1;
          if (failedStarts >= maxFailedStarts) failed(runlakeError('GRAPH_WORKER_START_FAILED', { reason }));
        }
      },
    };
  };

  const queryWorker = runsQueries ? new QueryWorker(workerOptions, createHooks()) : undefined;
  for (let started = 0; started < workers; started += 1) {
    runWorkers.add(new RunWorker(workerOptions, { ...createHooks(), onChange: schedule }));
  }

  function findWorker(run: RunInPool): RunWorker | undefined {
    return [...runWorkers, ...temporaryWorkers].find((worker) => worker.has(run));
  }

  function schedule(): void {
    if (isClosing) return;
    for (const run of pending) {
      const worker = run.job.alone ? findCleanWorker() : findLeastLoaded();
      if (worker === undefined) continue;
      pending.delete(run);
      worker.put(run);
    }
    const waitingAlone = [...pending].filter((run) => run.job.alone).length;
    for (const worker of temporaryWorkers) {
      if (worker.process.ready && worker.size === 0 && (waitingAlone === 0 || !worker.isClean)) retire(worker);
    }
    const starting = [...temporaryWorkers].filter((worker) => !worker.process.ready).length;
    if (waitingAlone > starting && temporaryWorkers.size < workers) {
      temporaryWorkers.add(
        new RunWorker(workerOptions, { onReady: () => undefined, onExit: () => undefined, onChange: schedule }),
      );
    }
    if (countFreeSlots() > 0) for (const listener of listeners) listener();
  }

  function retire(worker: RunWorker): void {
    temporaryWorkers.delete(worker);
    stopped.push(worker.process.stop('a temporary worker is no longer needed'));
  }

  function findCleanWorker(): RunWorker | undefined {
    return [...temporaryWorkers, ...runWorkers].find((worker) => worker.isClean && worker.countFreeSlots(1) === 1);
  }

  function findLeastLoaded(): RunWorker | undefined {
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

  function cancel(run: RunInPool, why: 'cancelled'): void {
    if (pending.delete(run)) void run.end({ kind: why });
    else findWorker(run)?.stop(run, why);
  }

  async function close(drainMs: number): Promise<void> {
    isClosing = true;
    const message = `The worker process of the run ended: ${stopReason}.`;
    for (const run of pending) void run.end({ kind: 'lost', cause: 'external', message });
    pending.clear();
    const all = [...runWorkers, ...temporaryWorkers];
    await poll(() => all.every((worker) => worker.size === 0), { intervalMs: 20, timeoutMs: drainMs });
    await Promise.all([queryWorker?.close(), ...all.map((worker) => worker.process.stop(stopReason)), ...stopped]);
  }

  try {
    await open;
  } catch (error) {
    await close(0);
    throw error;
  }
  for (const [graph, reason] of Object.entries(loadErrors)) logger.error({ graph, reason }, 'graph is unusable');

  for (const copy of await findUntestedLibraries(file)) {
    logger.warn(copy, `graphs load an untested version of @langchain/langgraph; tested: ${testedLibraries}`);
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
      const run = new RunInPool(lastKey, job, take, onChildRuns, {
        // A worker sends until the window is full, so the last event that it sends may exceed the window.
        limitBytes: sendWindowBytes + Math.max(options.maxEventBytes, minEventLimitBytes) + maxNameBytes,
        acknowledge: (each, bytes) => findWorker(each)?.acknowledge(each, bytes),
        onConsumeFailed: (each) => cancel(each, 'cancelled'),
      });
      if (isClosing) {
        void run.end({ kind: 'lost', cause: 'external', message: stopReason });
      } else {
        pending.add(run);
        schedule();
      }
      return { outcome: run.outcome, cancel: () => cancel(run, 'cancelled') };
    },
    async query(request) {
      if (queryWorker === undefined) throw runlakeError('INTERNAL', {}, { cause: 'this process has no query worker' });
      return queryWorker.query(request);
    },
    close,
  };
}
