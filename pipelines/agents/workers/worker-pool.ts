/**
 * The interface between the parent process, which serves HTTP requests, and the worker processes, which run graph code.
 */
import type { CheckpointChoice } from '../runs/run.ts';
import type { ClaimedRun } from '../runs/run-row.ts';
import type { Interrupt } from '../threads/thread.ts';
import type { ChildRunBatch, TraceOrder } from '../traces/trace-order.ts';

/** One attempt of a run. Its saver writes with the lease; after the lease is lost, every write is refused. */
export interface RunJob
  extends Omit<ClaimedRun, 'threadStart' | 'baseCheckpointId' | 'metadata' | 'sender' | 'startedAt'> {
  /**
   * `input`: the graph receives the input or command of the request and starts at `checkpoint`. If `checkpoint` is
   * absent, the graph starts at the head of the thread; if it is `'none'`, the graph ignores existing state.
   * `continue`: the graph receives no input and continues from the head of the thread, which an earlier attempt of this
   * run has written.
   */
  readonly start:
    | { readonly kind: 'input'; readonly checkpoint?: CheckpointChoice | 'none' }
    | { readonly kind: 'continue' };
  readonly timeoutMs: number;
  /** Settings for tracing the child runs. If absent, child runs are not traced. */
  readonly trace?: TraceOrder;
}

/** One event that a graph streamed. */
export interface Chunk {
  /** Stream mode. */
  readonly mode: string;
  /** Name of the event in the API, without the namespace. */
  readonly event: string;
  /** Namespace of the subgraph, with its parts joined by `|`; empty for the root graph. */
  readonly namespace: string;
  /** JSON text in UTF-8. */
  readonly data: Uint8Array;
}

/** Describes how an attempt ended. `values` is JSON text. */
export type RunOutcome =
  | {
      readonly kind: 'finished';
      /** The final state as JSON text. It is the body of `wait` and `join` responses. */
      readonly values: string;
      /** Nodes that would execute next. Not empty if the graph is interrupted. */
      readonly next: readonly string[];
      readonly interrupts: Readonly<Record<string, readonly Interrupt[]>>;
    }
  | { readonly kind: 'cancelled' }
  | { readonly kind: 'timeout' }
  /** The graph threw. `error` is the class name of the error. `values` is present if the state could be read. */
  | { readonly kind: 'failed'; readonly error: string; readonly message: string; readonly values?: string }
  /** The lease was lost: another process owns the run. */
  | { readonly kind: 'fenced' }
  /**
   * The attempt ended without a result. `worker`: the worker failed (crash, blocked event loop, protocol violation)
   * while it executed only this run; `shared-worker`: it failed while it executed several runs, or code of an earlier
   * one; `external`: an external signal killed the worker, the parent process is shutting down, or the database was
   * unavailable.
   */
  | { readonly kind: 'lost'; readonly cause: 'worker' | 'shared-worker' | 'external'; readonly message: string };

export interface RunHandle {
  /** Never rejects. Resolves after the last chunk has been consumed. */
  readonly outcome: Promise<RunOutcome>;
  /** Aborts the graph. The outcome is `cancelled` within a few seconds, even if the graph ignores the abort. */
  cancel(): void;
}

/** A query that a worker answers by running graph code. The answer is JSON text. */
export type GraphRequest =
  | {
      readonly kind: 'state';
      readonly thread: ThreadOfGraph;
      readonly checkpoint?: CheckpointChoice;
      readonly subgraphs: boolean;
      readonly select?: readonly string[];
    }
  | {
      readonly kind: 'history';
      readonly thread: ThreadOfGraph;
      readonly limit: number;
      readonly before?: CheckpointChoice;
      readonly checkpoint?: CheckpointChoice;
      readonly metadata?: Readonly<Record<string, unknown>>;
      readonly select?: readonly string[];
      /** Default: no limit. */
      readonly limitBytes?: number;
    }
  | {
      readonly kind: 'update-state';
      readonly thread: ThreadOfGraph;
      /** The `write_token` of the thread. */
      readonly leaseToken: string;
      readonly checkpoint?: CheckpointChoice;
      readonly updates: readonly {
        readonly values?: unknown;
        readonly command?: unknown;
        readonly as_node?: string;
      }[][];
    }
  | { readonly kind: 'schemas'; readonly graphId: string; readonly config: object }
  | {
      readonly kind: 'subgraphs';
      readonly graphId: string;
      readonly config: object;
      readonly namespace?: string;
      readonly recurse: boolean;
    }
  | { readonly kind: 'drawing'; readonly graphId: string; readonly config: object; readonly xray: boolean | number }
  /** Embeds texts with the embedder of the store. */
  | { readonly kind: 'embed'; readonly texts: readonly string[] };

export interface ThreadOfGraph {
  readonly deploymentId: string;
  readonly threadId: string;
  readonly graphId: string;
  /** Config of the thread's assistant; `configurable` has no thread_id. */
  readonly config: object;
}

export interface WorkerPool {
  /** Number of runs that can be started now. */
  readonly freeSlots: number;
  /** Number of further runs that can be started, in slots reserved for callers that use less than their fair share. */
  readonly extraSlots: number;
  /** Registers a listener that is called after a change if slots are free. */
  onFree(listener: () => void): void;
  /**
   * Starts one attempt. `take` receives the chunks of the attempt in order and in batches; the next batch follows when
   * `take` has resolved. The send window limits the buffered bytes, so a graph cannot stream faster than the log
   * accepts events. If `take` rejects, the run is cancelled. `onChildRuns` receives the child runs if `job.trace` is
   * set; the last child runs arrive before the outcome.
   */
  start(
    job: RunJob,
    take: (chunks: readonly Chunk[]) => Promise<void>,
    onChildRuns?: (traced: ChildRunBatch) => void,
  ): RunHandle;
  /**
   * Sends a query to a separate worker, so that it never waits behind runs. Resolves with the answer as JSON text.
   *
   * @throws GRAPH_WORKER_BUSY after two seconds in the queue, GRAPH_UNUSABLE, GRAPH_FAILED, STORE_EMBEDDER_UNUSABLE,
   *   and errors of the request itself, such as CHECKPOINT_NOT_FOUND.
   */
  query(request: GraphRequest): Promise<string>;
  /**
   * Waits up to `drainMs` for active runs to end. The remaining runs end as `lost` with cause `external`; none of them
   * is cancelled.
   */
  close(drainMs: number): Promise<void>;
}
