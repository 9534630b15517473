/**
 * The processes that run graph code, and what goes where.
 *
 * Invariant: a worker holds at most `runsPerWorker` runs and a quarter of that beyond, and none beside one that is to be alone. What
 * the front knows of a run stays here when its worker goes.
 *
 *   1. One worker for questions and `workers` for runs are started together; all have imported every graph before the pool is open.
 *   2. A run goes to the worker with the fewest. One that is to be alone goes to a worker without runs or remains of one, else to a
 *      further one, which is ended after it; of these there are at most as many as there are workers.
 *   3. A worker that goes is replaced (`kept-worker.ts`); a graph whose import ended it is a fault from then on, and not imported again.
 *   4. `close` waits for the runs under way, then kills: what is left is lost `outside`.
 */
import { fault } from '../../../infra/errors/runlake-error.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import type { GraphNodes } from '../graphs/graph-nodes.ts';
import type { GraphsFile } from '../graphs/graphs-file.ts';
import { testedLibraries, untestedLibraries } from '../graphs/untested-library.ts';
import type { GraphWorkerOptions, Verdict } from './graph-worker.ts';
import { minEventLimitBytes } from './packed-chunks.ts';
import { QuestionDesk } from './question-desk.ts';
import { faultOf } from './refusal.ts';
import { RunInPool } from './run-in-pool.ts';
import { RunPlace } from './run-place.ts';
import type { WorkerPool } from './worker-pool.ts';

export interface WorkerPoolOptions {
  readonly file: GraphsFile;
  /** 0: nothing is executed here. */
  readonly workers: number;
  /** Whether there is a further process for questions; default: yes. */
  readonly answersQuestions?: boolean;
  readonly runsPerWorker: number;
  /** Postgres as workers reach it. Absent: each worker keeps state for itself, in memory. */
  readonly database?: { readonly url: string; readonly authorities?: readonly string[] };
  /** Variables of this machine that graph code may see; the file's `env` comes on top. */
  readonly environment: Readonly<Record<string, string>>;
  readonly accounts?: GraphWorkerOptions['accounts'];
  /** Where the agent server answers, for code of the project. */
  readonly serverUrl?: string | undefined;
  readonly maxEventBytes: number;
  /** What a worker may hold back of the events that its runs stream. */
  readonly maxBufferedBytes: number;
  readonly silentMs: number;
  readonly logger: Logger;
  /** Limit of a worker's heap. Default: Node's own. */
  readonly heapMegabytes?: number | undefined;
  /** Default 120,000. */
  readonly loadWithinMs?: number;
}

export interface OpenWorkerPool extends WorkerPool {
  /** Why graphs cannot be used, by id. */
  readonly faults: Readonly<Record<string, string>>;
  /** Of graphs whose nodes are known before they run, by id; none where no process answers questions. */
  readonly nodes: Readonly<Record<string, GraphNodes>>;
}

const windowBytes = 4 * 1024 * 1024;
/** Names of an event, which belong to what it costs. */
const maxNameBytes = 16 * 1024;
const beatMs = 1_000;
/** Processes in a row that end before they are ready, for a reason that is no graph's. */
const mostFailedStarts = 3;
const stopping = 'the agent server stops';

/**
 * Starts the workers. A graph that cannot be used is a fault of its own, in `faults`.
 *
 * @throws STORE_EMBEDDER_UNUSABLE, GRAPH_WORKER_START_FAILED where the processes do not get ready for another reason.
 */
export async function openWorkerPool(options: WorkerPoolOptions): Promise<OpenWorkerPool> {
  const { file, workers, runsPerWorker, answersQuestions = true, logger } = options;
  const maxRunsPerWorker = runsPerWorker + Math.floor(runsPerWorker / 4);
  const processes = workers + (answersQuestions ? 1 : 0);
  const faults: Record<string, string> = {};
  const nodes: Record<string, GraphNodes> = {};
  const places = new Set<RunPlace>();
  const further = new Set<RunPlace>();
  const pending = new Set<RunInPool>();
  const listeners: (() => void)[] = [];
  const gone: Promise<void>[] = [];
  let closing = false;
  let lastKey = 0;
  let failedStarts = 0;
  let readyOnce = 0;
  let opened!: () => void;
  let failed!: (error: unknown) => void;
  const open = new Promise<void>((resolve, reject) => {
    opened = resolve;
    failed = reject;
  });

  const launch = (): Omit<GraphWorkerOptions, 'onMessage' | 'onGone'> => ({
    setup: {
      graphs: file.graphs.filter(({ graphId }) => faults[graphId] === undefined),
      faults: { ...faults },
      store: { ...file.store, folder: file.folder },
      ...(options.database && { database: options.database }),
      ...(options.serverUrl !== undefined && { serverUrl: options.serverUrl }),
      // A run writes once or twice; each connection is a process of Postgres with caches of its own.
      maxConnections: Math.max(4, Math.min(Math.ceil(runsPerWorker / 4), 16)),
      maxEventBytes: options.maxEventBytes,
      windowBytes,
      maxBufferedBytes: options.maxBufferedBytes,
      beatMs: Math.min(beatMs, options.silentMs / 4),
    },
    folder: file.folder,
    environment: { ...options.environment, ...file.env },
    accounts: options.accounts,
    heapMegabytes: options.heapMegabytes,
    silentMs: options.silentMs,
    loadWithinMs: options.loadWithinMs ?? 120_000,
    onLine: (line) => logger.info({ line }, 'graph code wrote'),
  });

  const watched = () => {
    let first = true;
    return {
      onReady: (found: Readonly<Record<string, string>>, told: Readonly<Record<string, GraphNodes>> = {}) => {
        Object.assign(faults, found);
        Object.assign(nodes, told);
        failedStarts = 0;
        if (!first) return;
        first = false;
        readyOnce += 1;
        if (readyOnce === processes) opened();
      },
      onGone: ({ reason, whileLoading, blame, unfit }: Verdict) => {
        if (closing) return;
        logger.warn({ reason, graph: whileLoading }, 'a process that runs graph code has gone');
        if (first && unfit !== undefined) failed(faultOf(unfit));
        else if (whileLoading !== undefined && blame === 'self') {
          faults[whileLoading] ??= `its module ended the process while it was imported: ${reason}`;
        } else if (first) {
          failedStarts += 1;
          if (failedStarts >= mostFailedStarts) failed(fault('GRAPH_WORKER_START_FAILED', { reason }));
        }
      },
    };
  };

  const desk = answersQuestions ? new QuestionDesk(launch, watched()) : undefined;
  for (let place = 0; place < workers; place += 1) {
    places.add(new RunPlace(launch, { ...watched(), onChange: schedule }));
  }

  function placeOf(run: RunInPool): RunPlace | undefined {
    return [...places, ...further].find((place) => place.has(run));
  }

  function schedule(): void {
    if (closing) return;
    for (const run of pending) {
      const place = run.job.alone ? emptyPlace() : leastLoaded();
      if (place === undefined) continue;
      pending.delete(run);
      place.put(run);
    }
    const waitingAlone = [...pending].filter((run) => run.job.alone).length;
    for (const place of further) {
      if (place.worker.ready && place.size === 0 && (waitingAlone === 0 || !place.isClean)) retire(place);
    }
    const starting = [...further].filter((place) => !place.worker.ready).length;
    if (waitingAlone > starting && further.size < workers) {
      further.add(new RunPlace(launch, { onReady: () => undefined, onGone: () => undefined, onChange: schedule }));
    }
    if (freeSlots() > 0) for (const listener of listeners) listener();
  }

  function retire(place: RunPlace): void {
    further.delete(place);
    gone.push(place.worker.stop('it was for runs that had to be alone'));
  }

  function emptyPlace(): RunPlace | undefined {
    return [...further, ...places].find((place) => place.isClean && place.room(1) === 1);
  }

  function leastLoaded(): RunPlace | undefined {
    const [least] = [...places].filter((place) => place.room(maxRunsPerWorker) > 0).sort((a, b) => a.size - b.size);
    return least;
  }

  function freeSlots(perWorker = runsPerWorker): number {
    if (closing) return 0;
    const room = [...places].reduce((sum, place) => sum + place.room(perWorker), 0);
    return Math.max(0, room - pending.size);
  }

  function cancel(run: RunInPool, why: 'cancelled'): void {
    if (pending.delete(run)) void run.end({ kind: why });
    else placeOf(run)?.stop(run, why);
  }

  async function close(drainMs: number): Promise<void> {
    closing = true;
    const message = `The process that executed the run is gone: ${stopping}.`;
    for (const run of pending) void run.end({ kind: 'lost', blame: 'outside', message });
    pending.clear();
    const deadlineMs = performance.now() + drainMs;
    const all = [...places, ...further];
    while (all.some((place) => place.size > 0) && performance.now() < deadlineMs) {
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    await Promise.all([desk?.close(), ...all.map((place) => place.worker.stop(stopping)), ...gone]);
  }

  try {
    await open;
  } catch (error) {
    await close(0);
    throw error;
  }
  for (const [graph, reason] of Object.entries(faults)) logger.error({ graph, reason }, 'a graph cannot be used');

  for (const copy of await untestedLibraries(file)) {
    logger.warn(
      copy,
      `graphs load a version of @langchain/langgraph that Runlake is not tested with: ${testedLibraries}`,
    );
  }

  return {
    faults,
    nodes,
    get freeSlots() {
      return freeSlots();
    },
    get extraSlots() {
      return freeSlots(maxRunsPerWorker) - freeSlots();
    },
    onFree: (listener) => void listeners.push(listener),
    start(job, take, takeTraced) {
      lastKey += 1;
      const run = new RunInPool(lastKey, job, take, takeTraced, {
        // A worker sends as long as there is room: one event may be larger than what is left of the window.
        limitBytes: windowBytes + Math.max(options.maxEventBytes, minEventLimitBytes) + maxNameBytes,
        acknowledge: (each, bytes) => placeOf(each)?.acknowledge(each, bytes),
        takeFailed: (each) => cancel(each, 'cancelled'),
      });
      if (closing) {
        void run.end({ kind: 'lost', blame: 'outside', message: stopping });
      } else {
        pending.add(run);
        schedule();
      }
      return { outcome: run.outcome, cancel: () => cancel(run, 'cancelled') };
    },
    async ask(request) {
      if (desk === undefined) throw fault('INTERNAL', {}, { cause: 'this process answers no questions' });
      return desk.ask(request);
    },
    close,
  };
}
