import { runlakeError } from '../../../../infra/errors/runlake-error.ts';
import type { GraphNodes } from '../../graphs/graph-nodes.ts';
import { createViolationError } from '../frames.ts';
import type { GraphRequest, MessageFromWorker } from '../messages.ts';
import { serializeFailure, toRunlakeError } from '../serialized-error.ts';
import { type WorkerExit, WorkerHandle, type WorkerOptions } from './worker-handle.ts';

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
 * The handle of the query worker, a separate worker, so that queries never wait behind runs.
 *
 * Invariant: each query is settled once: with its answer, its error or a timeout.
 *
 *   1. A query waits in the queue for at most two seconds.
 *   2. The query is sent to the worker when fewer than 16 queries are in flight. It times out if the worker does not
 *      answer within 30 s.
 *   3. If the worker ends while only one query is in flight, that query is considered the cause and fails. If several
 *      queries are in flight, they fail with GRAPH_WORKER_BUSY, which is retryable.
 */
export class QueryWorkerHandle extends WorkerHandle {
  readonly #queue = new Map<number, Query>();
  readonly #inFlight = new Map<number, Query>();
  /** Keys of queries that have timed out in the worker. Their answers may still arrive. */
  readonly #timedOut = new Set<number>();
  #lastKey = 0;
  #isClosed = false;

  constructor(
    options: () => WorkerOptions,
    hooks: {
      readonly onReady: (
        loadErrors: Readonly<Record<string, string>>,
        nodes: Readonly<Record<string, GraphNodes>>,
      ) => void;
      readonly onExit: (exit: WorkerExit) => void;
    },
  ) {
    super(options, {
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
    await this.stop('the agent server stops');
  }

  #sendNext(): void {
    for (const query of this.#queue.values()) {
      if (!this.ready || this.#inFlight.size >= maxConcurrent) return;
      this.#queue.delete(query.key);
      this.#inFlight.set(query.key, query);
      clearTimeout(query.timer);
      query.timer = setTimeout(() => {
        this.#timedOut.add(query.key);
        this.#settle(query, runlakeError('GRAPH_WORKER_BUSY'));
      }, queryTimeoutMs);
      this.send({ kind: 'query', key: query.key, request: query.request });
    }
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
