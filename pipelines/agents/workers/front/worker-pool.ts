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
 *   3. A worker that exits is restarted (`worker-handle.ts`). If it cannot import a graph, or ends meanwhile, that graph
 *      is marked as unusable and is not imported again. If an earlier process has imported the graph, the cause may be
 *      temporary: then the worker is restarted for `importRetryMs` first.
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
  /** How long processes retry to import a graph that an earlier process has imported. Default: 30,000 ms. */
  readonly importRetryMs?: number;
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
const defaultImportRetryMs = 30_000;

/**
 * Starts the workers and resolves when all of them are ready. If a graph is unusable, the pool opens without it, and
 * `loadErrors` contains the reason.
 *
 * @throws STORE_EMBEDDER_UNUSABLE, or GRAPH_WORKER_START_FAILED if the processes do not become ready for another
 *   reason.
 */
export async function openWorkerPool(options: WorkerPoolOptions): Promise<OpenWorkerPool> {
  const { file, logger } = options;
  const pool = new Pool(options);
  try {
    await pool.open;
  } catch (error) {
    await pool.close(0);
    throw error;
  }
  for (const [graph, reason] of pool.loadErrors) logger.error({ graph, reason }, 'graph is unusable');
  for (const copy of await findUntestedLibraries(file)) {
    logger.warn(copy, `graphs load an untested version of @langchain/langgraph; tested: ${testedLibraryVersions}`);
  }
  return pool;
}

class Pool implements OpenWorkerPool {
  readonly loadErrors = new Map<string, string>();
  readonly nodes = new Map<string, GraphNodes>();
  /** Resolves when all workers have been ready once. */
  readonly open: Promise<void>;
  readonly #options: WorkerPoolOptions;
  readonly #maxRunsPerWorker: number;
  readonly #queryWorker: QueryWorkerHandle | undefined;
  readonly #runWorkers = new Set<RunWorkerHandle>();
  readonly #temporaryWorkers = new Set<RunWorkerHandle>();
  readonly #pending = new Set<RunSlot>();
  readonly #listeners: (() => void)[] = [];
  readonly #importedGraphs = new Set<string>();
  /** By graph that was imported before: the time at which importing it again first failed. */
  readonly #failingSinceMs = new Map<string, number>();
  /** Temporary workers that are being stopped. */
  readonly #stopping = new Set<Promise<void>>();
  #isClosing = false;
  #lastKey = 0;
  #starting: number;
  #failedStarts = 0;
  #opened!: () => void;
  #failed!: (error: unknown) => void;

  constructor(options: WorkerPoolOptions) {
    const { workers, runsPerWorker, runsQueries = true, queryTimeoutMs } = options;
    this.#options = options;
    this.#maxRunsPerWorker = runsPerWorker + Math.floor(runsPerWorker / 4);
    this.#starting = workers + (runsQueries ? 1 : 0);
    this.open = new Promise<void>((resolve, reject) => {
      this.#opened = resolve;
      this.#failed = reject;
    });
    if (runsQueries)
      this.#queryWorker = new QueryWorkerHandle(this.#workerOptions, this.#createHooks(), queryTimeoutMs);
    for (let started = 0; started < workers; started += 1)
      this.#runWorkers.add(
        new RunWorkerHandle(this.#workerOptions, { ...this.#createHooks(), onChange: this.#schedule }),
      );
  }

  get freeSlots(): number {
    return this.#countFreeSlots();
  }

  get extraSlots(): number {
    return this.#countFreeSlots(this.#maxRunsPerWorker) - this.#countFreeSlots();
  }

  onFree(listener: () => void): void {
    this.#listeners.push(listener);
  }

  start(
    job: RunJob,
    take: (chunks: readonly Chunk[]) => Promise<void>,
    onChildRuns?: (traced: ChildRunBatch) => void,
  ): RunSlot {
    this.#lastKey += 1;
    const slot = new RunSlot(
      this.#lastKey,
      job,
      { take, onChildRuns },
      {
        // A worker sends until the window is full, so its last event may exceed the window.
        limitBytes: sendWindowBytes + Math.max(this.#options.maxEventBytes, minEventLimitBytes) + maxNameBytes,
        acknowledge: (each, bytes) => this.#findWorker(each)?.acknowledge(each, bytes),
        cancel: (each) => this.#cancel(each),
      },
    );
    if (this.#isClosing) {
      void slot.end({ kind: 'lost', cause: 'external', message: stopReason });
    } else {
      this.#pending.add(slot);
      this.#schedule();
    }
    return slot;
  }

  async query(request: GraphRequest): Promise<string> {
    if (this.#queryWorker === undefined)
      throw runlakeError('INTERNAL', {}, { cause: 'this process has no query worker' });
    return this.#queryWorker.query(request);
  }

  async close(drainMs: number): Promise<void> {
    this.#isClosing = true;
    const message = `The worker process of the run ended: ${stopReason}.`;
    for (const slot of this.#pending) void slot.end({ kind: 'lost', cause: 'external', message });
    this.#pending.clear();
    const all = [...this.#runWorkers, ...this.#temporaryWorkers];
    await poll(() => all.every((worker) => worker.size === 0), { intervalMs: 20, timeoutMs: drainMs });
    await Promise.all([this.#queryWorker?.close(), ...all.map((worker) => worker.stop(stopReason)), ...this.#stopping]);
  }

  /** The options of the next process. Graphs that have become unusable are not among them. */
  readonly #workerOptions = (): WorkerOptions => {
    const { file, logger, ...options } = this.#options;
    return {
      setup: {
        graphs: file.graphs.filter(({ graphId }) => !this.loadErrors.has(graphId)),
        loadErrors: Object.fromEntries(this.loadErrors),
        store: { ...file.store, folder: file.folder },
        ...(options.database && { database: options.database }),
        ...(options.serverUrl !== undefined && { serverUrl: options.serverUrl }),
        // A run writes only once or twice, and each Postgres connection costs a server process with its own caches.
        maxConnections: Math.max(4, Math.min(Math.ceil(options.runsPerWorker / 4), 16)),
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
    };
  };

  /** Hooks of a worker that the pool waits for when it opens. */
  #createHooks() {
    let first = true;
    return {
      onReady: (newErrors: Readonly<Record<string, string>>, newNodes: Readonly<Record<string, GraphNodes>> = {}) => {
        const retryReason = this.#recordImports(newErrors);
        if (retryReason !== undefined && !first) return retryReason;
        for (const [graphId, reason] of Object.entries(newErrors)) this.loadErrors.set(graphId, reason);
        for (const [graphId, names] of Object.entries(newNodes)) this.nodes.set(graphId, names);
        this.#failedStarts = 0;
        if (!first) return undefined;
        first = false;
        this.#starting -= 1;
        if (this.#starting === 0) this.#opened();
        return undefined;
      },
      onExit: ({ reason, whileLoading, cause, unusable }: WorkerExit) => {
        if (this.#isClosing) return;
        this.#options.logger.warn({ reason, graph: whileLoading }, 'worker process ended');
        if (first && unusable !== undefined) this.#failed(toRunlakeError(unusable));
        else if (whileLoading !== undefined && cause === 'worker') {
          if (!this.loadErrors.has(whileLoading) && !this.#recordFailedImport(whileLoading))
            this.loadErrors.set(whileLoading, `its module ended the process while it was imported: ${reason}`);
        } else if (first) {
          this.#failedStarts += 1;
          if (this.#failedStarts >= maxFailedStarts)
            this.#failed(runlakeError('GRAPH_WORKER_START_FAILED', { reason }));
        }
      },
    };
  }

  /**
   * Records which graphs a process has imported. Returns why the process must be replaced, if it failed to import a
   * graph that can perhaps be imported later.
   */
  #recordImports(newErrors: Readonly<Record<string, string>>): string | undefined {
    for (const { graphId } of this.#options.file.graphs) {
      if (Object.hasOwn(newErrors, graphId)) continue;
      this.#importedGraphs.add(graphId);
      this.#failingSinceMs.delete(graphId);
    }
    // All graphs are recorded, so that they are retried at the same time.
    const [found] = Object.entries(newErrors).filter(
      ([graphId]) => !this.loadErrors.has(graphId) && this.#recordFailedImport(graphId),
    );
    return found && `graph '${found[0]}' was imported before and cannot be imported now: ${found[1]}`;
  }

  /** Records that a process failed to import a graph. Returns whether another process should try again. */
  #recordFailedImport(graphId: string): boolean {
    if (!this.#importedGraphs.has(graphId)) return false;
    const sinceMs = this.#failingSinceMs.get(graphId) ?? performance.now();
    this.#failingSinceMs.set(graphId, sinceMs);
    return performance.now() - sinceMs < (this.#options.importRetryMs ?? defaultImportRetryMs);
  }

  /** Step 2. Called after each change of the pending runs and of the workers. */
  readonly #schedule = (): void => {
    if (this.#isClosing) return;
    for (const slot of this.#pending) {
      const worker = slot.job.alone ? this.#findCleanWorker() : this.#findLeastLoaded();
      if (worker === undefined) continue;
      this.#pending.delete(slot);
      worker.put(slot);
    }
    const waitingAlone = [...this.#pending].filter((slot) => slot.job.alone).length;
    for (const worker of this.#temporaryWorkers) {
      if (worker.ready && worker.size === 0 && (waitingAlone === 0 || !worker.isClean)) this.#retire(worker);
    }
    const starting = [...this.#temporaryWorkers].filter((worker) => !worker.ready).length;
    if (waitingAlone > starting && this.#temporaryWorkers.size < this.#options.workers) {
      const onReady = (errors: Readonly<Record<string, string>>) => this.#recordImports(errors);
      const hooks = { onReady, onExit: () => undefined, onChange: this.#schedule };
      this.#temporaryWorkers.add(new RunWorkerHandle(this.#workerOptions, hooks));
    }
    if (this.#countFreeSlots() > 0) for (const listener of this.#listeners) listener();
  };

  #retire(worker: RunWorkerHandle): void {
    this.#temporaryWorkers.delete(worker);
    const stopping = worker.stop('a temporary worker is no longer needed');
    this.#stopping.add(stopping);
    void stopping.then(() => this.#stopping.delete(stopping));
  }

  #findWorker(slot: RunSlot): RunWorkerHandle | undefined {
    return [...this.#runWorkers, ...this.#temporaryWorkers].find((worker) => worker.has(slot));
  }

  #findCleanWorker(): RunWorkerHandle | undefined {
    return [...this.#temporaryWorkers, ...this.#runWorkers].find(
      (worker) => worker.isClean && worker.countFreeSlots(1) === 1,
    );
  }

  #findLeastLoaded(): RunWorkerHandle | undefined {
    const [leastLoaded] = [...this.#runWorkers]
      .filter((worker) => worker.countFreeSlots(this.#maxRunsPerWorker) > 0)
      .sort((a, b) => a.size - b.size);
    return leastLoaded;
  }

  #countFreeSlots(perWorker = this.#options.runsPerWorker): number {
    if (this.#isClosing) return 0;
    const freeSlots = [...this.#runWorkers].reduce((sum, worker) => sum + worker.countFreeSlots(perWorker), 0);
    return Math.max(0, freeSlots - this.#pending.size);
  }

  #cancel(slot: RunSlot): void {
    if (this.#pending.delete(slot)) void slot.end({ kind: 'cancelled' });
    else this.#findWorker(slot)?.stopRun(slot, 'cancelled');
  }
}
