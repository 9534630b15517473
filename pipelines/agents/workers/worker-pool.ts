/** The port of the processes that run graph code, as the process that answers HTTP sees it. */
import type { CheckpointChoice } from '../runs/run.ts';
import type { ClaimedRun } from '../runs/run-row.ts';
import type { Interrupt } from '../threads/thread.ts';
import type { TracedRuns, TraceOrder } from '../traces/trace-order.ts';

/** One attempt of a run. Its saver writes under the lease; whoever has lost that writes nothing. */
export interface RunJob
  extends Omit<ClaimedRun, 'threadStart' | 'baseCheckpointId' | 'metadata' | 'sender' | 'startedAt'> {
  /**
   * `input`: input or command of the request, on the checkpoint given (absent: on the head; `'none'`: as if the thread had none).
   * `continue`: nothing is put in, the head is this run's own and is gone on from.
   */
  readonly start:
    | { readonly kind: 'input'; readonly checkpoint?: CheckpointChoice | 'none' }
    | { readonly kind: 'continue' };
  readonly timeoutMs: number;
  /** Absent: what runs inside of it is not traced. */
  readonly trace?: TraceOrder;
}

/** One event that a graph streamed. */
export interface Chunk {
  /** The stream mode that it belongs to. */
  readonly mode: string;
  /** Name on the wire, without the namespace. */
  readonly event: string;
  /** Of a subgraph: parts joined with a bar; else empty. */
  readonly namespace: string;
  /** JSON text in UTF-8. */
  readonly data: Uint8Array;
}

/** How the graph's code ended. `values` is JSON text. */
export type RunOutcome =
  | {
      readonly kind: 'finished';
      /** The state at the end, as JSON text; what `wait` and `join` answer. */
      readonly values: string;
      /** Nodes that would come next: not empty where it waits for a person. */
      readonly next: readonly string[];
      readonly interrupts: Readonly<Record<string, readonly Interrupt[]>>;
    }
  | { readonly kind: 'cancelled' }
  | { readonly kind: 'timeout' }
  /** The graph threw. `error` is the name of its class. `values` where the state could be read. */
  | { readonly kind: 'failed'; readonly error: string; readonly message: string; readonly values?: string }
  /** The lease was lost: another process has the run. */
  | { readonly kind: 'fenced' }
  /**
   * The worker ended. `self`: by itself, with this run alone in it, so that this run is to blame; `shared`: by itself, with
   * others beside it; `outside`: killed by somebody else, or this process is stopping.
   */
  | { readonly kind: 'lost'; readonly blame: 'self' | 'shared' | 'outside'; readonly message: string };

export interface RunHandle {
  /** Never rejects. Comes after the last chunk was taken. */
  readonly outcome: Promise<RunOutcome>;
  /** Asks the graph to stop; the outcome then is `cancelled` within a few seconds, whatever the graph does. */
  cancel(): void;
}

/** A question to graph code. Answers are JSON text. */
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
      /** Default: as many as there are. */
      readonly limitBytes?: number;
    }
  | {
      readonly kind: 'update-state';
      readonly thread: ThreadOfGraph;
      /** The thread's `write_token`. */
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
  /** Vectors of texts, by the embedder of the store. */
  | { readonly kind: 'embed'; readonly texts: readonly string[] };

export interface ThreadOfGraph {
  readonly deploymentId: string;
  readonly threadId: string;
  readonly graphId: string;
  /** Of the thread's assistant; `configurable` without thread_id. */
  readonly config: object;
}

export interface WorkerPool {
  /** Runs that can be started now. */
  readonly freeSlots: number;
  /** Runs that can be started beyond those. Only for callers that hold less than their share. */
  readonly extraSlots: number;
  /** Called when a slot becomes free. */
  onFree(listener: () => void): void;
  /**
   * Starts one attempt. `take` gets its chunks in order, those of one turn of the graph's event loop together; the next come
   * when it has resolved, within a bound in bytes, so that a graph cannot outrun the log. If it rejects the run is cancelled.
   * `takeTraced` gets the runs inside of it, where `job.trace` asks for them; the last before the outcome.
   */
  start(
    job: RunJob,
    take: (chunks: readonly Chunk[]) => Promise<void>,
    takeTraced?: (traced: TracedRuns) => void,
  ): RunHandle;
  /** @throws GRAPH_WORKER_BUSY after two seconds in the queue, GRAPH_UNUSABLE, GRAPH_FAILED, STORE_EMBEDDER_UNUSABLE, and what the request itself is refused with. */
  ask(request: GraphRequest): Promise<string>;
  /** Cancels nothing: runs under way end as `lost`, `outside`, after `drainMs`. */
  close(drainMs: number): Promise<void>;
}
