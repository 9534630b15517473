import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { GraphNodes } from '../graphs/graph-nodes.ts';
import type { GraphsFile } from '../graphs/graphs-file.ts';
import { violation } from './frames.ts';
import { type GraphWorkerOptions, SupervisedWorker, type SupervisedWorkerHooks } from './graph-worker.ts';
import type { FromWorker } from './message-codec.ts';
import { serializeFailure, toRunlakeError } from './serialized-error.ts';
import type { GraphRequest } from './worker-pool.ts';

const fieldPaths = { auth: 'auth.path', app: 'http.app' } as const;
const loadTimeoutMs = 120_000;

export interface ModuleWorkerOptions {
  readonly part: keyof typeof fieldPaths;
  /** The settings of a worker that tell it which module to load and the server URL for the code of that module. */
  readonly setup: Pick<GraphWorkerOptions['setup'], 'auth' | 'app' | 'serverUrl'>;
  readonly file: Pick<GraphsFile, 'path' | 'folder' | 'env'>;
  readonly environment: Readonly<Record<string, string>>;
  readonly accounts?: GraphWorkerOptions['accounts'];
  readonly heartbeatTimeoutMs: number;
  readonly onLine: GraphWorkerOptions['onLine'];
  /**
   * Callbacks of the process. `onReady` is called only if the module is usable. `onExit` is not called if the module is
   * unusable.
   */
  readonly hooks: SupervisedWorkerHooks;
}

/**
 * Starts a supervised process for a module that is not a graph, that is, for custom authentication or the custom app.
 *
 * Resolves when the module is loaded.
 *
 * @throws GRAPHS_FILE_INVALID if the module is unusable; in this case no process is left running.
 */
export async function openModuleWorker(options: ModuleWorkerOptions): Promise<SupervisedWorker> {
  const { part, setup, file, environment, accounts, heartbeatTimeoutMs, onLine, hooks } = options;
  const unusable = (reason: string) =>
    runlakeError('GRAPHS_FILE_INVALID', { file: file.path, location: fieldPaths[part], reason });
  let hasGivenUp = false;
  let opened!: () => void;
  let failed!: (error: unknown) => void;
  const open = new Promise<void>((resolve, reject) => {
    opened = resolve;
    failed = reject;
  });
  const worker = new SupervisedWorker(
    () => ({
      setup: {
        graphs: [],
        ...setup,
        maxConnections: 1,
        maxEventBytes: 1,
        windowBytes: 1,
        maxBufferedBytes: 1,
        heartbeatMs: Math.min(1_000, heartbeatTimeoutMs / 4),
      },
      folder: file.folder,
      environment: { ...environment, ...file.env },
      accounts,
      heapMegabytes: undefined,
      heartbeatTimeoutMs,
      loadTimeoutMs,
      onLine,
    }),
    {
      onReady: (loadErrors, routes, nodes) => {
        const reason = loadErrors[part];
        if (reason !== undefined) return failed(unusable(reason));
        hooks.onReady(loadErrors, routes, nodes);
        opened();
      },
      onMessage: hooks.onMessage,
      onExit: (exit) => {
        if (!hasGivenUp) hooks.onExit(exit);
        failed(unusable(`its process ended: ${exit.reason}`));
      },
    },
  );
  try {
    await open;
  } catch (error) {
    hasGivenUp = true;
    await worker.stop('its module is unusable');
    throw error;
  }
  return worker;
}

interface Query {
  readonly key: number;
  readonly request: GraphRequest;
  readonly resolve: (json: string) => void;
  readonly reject: (error: unknown) => void;
  timer: NodeJS.Timeout;
}

/** Maximum number of concurrent queries in the worker. A query spends most of its time waiting for the database. */
const maxConcurrent = 16;
const queueTimeoutMs = 2_000;
const queryTimeoutMs = 30_000;

/**
 * Sends queries to a separate worker, the query worker, so that they never wait behind runs.
 *
 * Invariant: each query is settled once: with its answer, its error or a timeout.
 *
 *   1. A query waits in the queue for at most two seconds.
 *   2. The query is sent to the worker when fewer than 16 queries are in flight. It times out if the worker does not
 *      answer within 30 s.
 *   3. If the worker ends while only one query is in flight, that query is considered the cause and fails. If several
 *      queries are in flight, they fail with GRAPH_WORKER_BUSY, which is retryable.
 */
export class QueryWorker {
  readonly #worker: SupervisedWorker;
  readonly #queue = new Map<number, Query>();
  readonly #inFlight = new Map<number, Query>();
  /** Keys of queries that have timed out in the worker. Their answers may still arrive. */
  readonly #timedOut = new Set<number>();
  #lastKey = 0;
  #isClosed = false;

  constructor(
    options: () => Omit<GraphWorkerOptions, 'onMessage' | 'onExit'>,
    hooks: {
      readonly onReady: (
        loadErrors: Readonly<Record<string, string>>,
        nodes: Readonly<Record<string, GraphNodes>>,
      ) => void;
      readonly onExit: (exit: Parameters<GraphWorkerOptions['onExit']>[0]) => void;
    },
  ) {
    this.#worker = new SupervisedWorker(options, {
      onReady: (loadErrors, _routes, nodes) => {
        hooks.onReady(loadErrors, nodes);
        this.#sendNext();
      },
      onMessage: (message) => this.#receive(message),
      onExit: (exit) => {
        const isOnlyQuery = this.#inFlight.size === 1;
        this.#timedOut.clear();
        for (const query of [...this.#inFlight.values()]) {
          this.#settle(
            query,
            isOnlyQuery && exit.cause === 'worker'
              ? toRunlakeError(serializeFailure(query.request, `the process that executed it ended: ${exit.reason}`))
              : runlakeError('GRAPH_WORKER_BUSY'),
          );
        }
        hooks.onExit(exit);
      },
    });
  }

  /**
   * Resolves with the answer as JSON text. @throws GRAPH_WORKER_BUSY, GRAPH_FAILED, and the error that the worker
   * returns.
   */
  query(request: GraphRequest): Promise<string> {
    if (this.#isClosed) return Promise.reject(runlakeError('GRAPH_WORKER_BUSY'));
    return new Promise((resolve, reject) => {
      this.#lastKey += 1;
      const query: Query = {
        key: this.#lastKey,
        request,
        resolve,
        reject,
        timer: setTimeout(() => this.#settle(query, runlakeError('GRAPH_WORKER_BUSY')), queueTimeoutMs),
      };
      this.#queue.set(query.key, query);
      this.#sendNext();
    });
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    for (const query of [...this.#queue.values(), ...this.#inFlight.values()]) {
      this.#settle(query, runlakeError('GRAPH_WORKER_BUSY'));
    }
    await this.#worker.stop('the agent server stops');
  }

  #sendNext(): void {
    for (const query of this.#queue.values()) {
      if (!this.#worker.ready || this.#inFlight.size >= maxConcurrent) return;
      this.#queue.delete(query.key);
      this.#inFlight.set(query.key, query);
      clearTimeout(query.timer);
      query.timer = setTimeout(() => {
        this.#timedOut.add(query.key);
        this.#settle(query, runlakeError('GRAPH_WORKER_BUSY'));
      }, queryTimeoutMs);
      this.#worker.send({ kind: 'query', key: query.key, request: query.request });
    }
  }

  #receive(message: FromWorker): void {
    if (message.kind !== 'response' && message.kind !== 'query-error') {
      throw violation(`a message '${message.kind}' of the query worker`);
    }
    const query = this.#inFlight.get(message.key);
    if (query === undefined) {
      if (this.#timedOut.delete(message.key)) return;
      throw violation('an answer with an unknown key');
    }
    this.#settle(query, message.kind === 'response' ? message.json : toRunlakeError(message.error));
    this.#sendNext();
  }

  #settle(query: Query, result: string | Error): void {
    clearTimeout(query.timer);
    this.#queue.delete(query.key);
    this.#inFlight.delete(query.key);
    if (typeof result === 'string') query.resolve(result);
    else query.reject(result);
  }
}
