import { runlakeError } from '../../../../infra/errors/runlake-error.ts';
import type { GraphNodes } from '../../graphs/graph-nodes.ts';
import { createViolationError } from '../frames.ts';
import type { GraphRequest, MessageFromWorker } from '../messages.ts';
import { serializeFailure, toRunlakeError } from '../serialized-error.ts';
import { type WorkerExit, WorkerHandle, type WorkerOptions } from './worker-handle.ts';

interface Query {
  readonly key: number;
  readonly request: GraphRequest;
  /** The graph whose code answers the query; undefined for the embedder of the store. */
  readonly graphId: string | undefined;
  readonly resolve: (json: string) => void;
  readonly reject: (error: unknown) => void;
  timer: NodeJS.Timeout;
}

/** Maximum number of concurrent queries in the worker. A query spends most of its time waiting for the database. */
const maxConcurrent = 16;
/** Maximum number of concurrent queries of one of several graphs, so that a graph that hangs does not block the others. */
const maxConcurrentPerGraph = maxConcurrent / 2;
/** Number of unanswered queries after which the worker is replaced. Their code keeps running, and keeps its memory. */
const maxTimedOut = 100;
const queueTimeoutMs = 2_000;
const defaultQueryTimeoutMs = 30_000;

/**
 * The handle of the query worker, a separate worker, so that queries never wait behind runs.
 *
 * Invariant: each query is settled once: with its answer, its error or a timeout.
 *
 *   1. A query waits in the queue for at most two seconds.
 *   2. The query is sent to the worker when fewer than 16 queries are in flight; if the worker has several graphs, at
 *      most 8 of them for the same graph. It times out if the worker does not answer within 30 s.
 *   3. If 100 queries that timed out are still unanswered, the worker is replaced.
 *   4. If the worker ends while only one query is in flight, that query is considered the cause and fails. If several
 *      queries are in flight, they fail with GRAPH_WORKER_BUSY, which is retryable.
 */
export class QueryWorkerHandle extends WorkerHandle {
  readonly #queue = new Map<number, Query>();
  readonly #inFlight = new Map<number, Query>();
  /** Keys of queries that have timed out in the worker. Their answers may still arrive. */
  readonly #timedOut = new Set<number>();
  readonly #queryTimeoutMs: number;
  #maxPerGraph = maxConcurrent;
  #lastKey = 0;
  #isClosed = false;

  constructor(
    options: () => WorkerOptions,
    hooks: {
      /** Returns the reason to replace the process, which then gets no query. */
      readonly onReady: (
        loadErrors: Readonly<Record<string, string>>,
        nodes: Readonly<Record<string, GraphNodes>>,
      ) => string | undefined;
      readonly onExit: (exit: WorkerExit) => void;
    },
    queryTimeoutMs = defaultQueryTimeoutMs,
  ) {
    super(options, {
      onReady: (loadErrors, _routes, nodes) => {
        const reason = hooks.onReady(loadErrors, nodes);
        if (reason !== undefined) return this.kill('external', reason);
        this.#maxPerGraph = Object.keys(nodes).length > 1 ? maxConcurrentPerGraph : maxConcurrent;
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
    this.#queryTimeoutMs = queryTimeoutMs;
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
        graphId: getGraphId(request),
        resolve,
        reject,
        timer: setTimeout(() => this.#settle(query, runlakeError('GRAPH_WORKER_BUSY')), queueTimeoutMs),
      };
      this.#queue.set(query.key, query);
      if (this.ready && this.#inFlight.size < maxConcurrent) this.#send(query);
    });
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    for (const query of [...this.#queue.values(), ...this.#inFlight.values()]) {
      this.#settle(query, runlakeError('GRAPH_WORKER_BUSY'));
    }
    await this.stop('the agent server stops');
  }

  #sendNext(): void {
    const fullGraphs = new Set<string | undefined>();
    for (const query of this.#queue.values()) {
      if (!this.ready || this.#inFlight.size >= maxConcurrent) return;
      if (!fullGraphs.has(query.graphId) && !this.#send(query)) fullGraphs.add(query.graphId);
    }
  }

  /** Sends a queued query. Returns false if its graph has the maximum number of queries in flight. */
  #send(query: Query): boolean {
    const ofGraph = [...this.#inFlight.values()].filter(({ graphId }) => graphId === query.graphId);
    if (ofGraph.length >= this.#maxPerGraph) return false;
    this.#queue.delete(query.key);
    this.#inFlight.set(query.key, query);
    clearTimeout(query.timer);
    query.timer = setTimeout(() => {
      this.#timedOut.add(query.key);
      this.#settle(query, runlakeError('GRAPH_WORKER_BUSY'));
      if (this.#timedOut.size >= maxTimedOut) this.kill('external', `${maxTimedOut} queries did not end`);
      this.#sendNext();
    }, this.#queryTimeoutMs);
    this.send({ kind: 'query', key: query.key, request: query.request });
    return true;
  }

  #receive(message: MessageFromWorker): void {
    if (message.kind !== 'response' && message.kind !== 'query-error') {
      throw createViolationError(`a message '${message.kind}' of the query worker`);
    }
    const query = this.#inFlight.get(message.key);
    if (query === undefined) {
      if (this.#timedOut.delete(message.key)) return;
      throw createViolationError('an answer with an unknown key');
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

function getGraphId(request: GraphRequest): string | undefined {
  if (request.kind === 'embed') return undefined;
  return 'thread' in request ? request.thread.graphId : request.graphId;
}
