/**
 * The messages between the parent process, which serves HTTP requests (`front/`), and the worker processes, which run
 * graph code (`child/`). A worker is untrusted: `message-codec.ts` validates what it sends.
 */
import type { ErrorCode } from '../../../infra/errors/catalogue.ts';
import type { StreamEvent } from '../../streams/stream-event.ts';
import type { AppRoute } from '../app/app-route.ts';
import type { AuthorizationRequest, AuthRequest } from '../auth/agent-user.ts';
import type { RunState } from '../graphs/compiled-graph.ts';
import type { GraphNodes } from '../graphs/graph-nodes.ts';
import type { ExportReference, GraphSource, GraphsFile } from '../graphs/graphs-file.ts';
import type { CheckpointReference } from '../runs/run.ts';
import type { ClaimedRun } from '../runs/run-row.ts';
import type { ChildRunBatch, TraceInstructions } from '../traces/trace-order.ts';

/** One attempt of a run. Its saver writes under the lease; after the lease is lost, every write is refused. */
export interface RunJob
  extends Omit<ClaimedRun, 'threadStart' | 'baseCheckpointId' | 'metadata' | 'sender' | 'startedAt'> {
  /**
   * `input`: the graph receives the input or command of the request and starts at `checkpoint`. If `checkpoint` is
   * absent, it starts at the head of the thread; if it is `'none'`, it ignores existing state. `continue`: the graph
   * receives no input and continues from the head of the thread, which this run has written.
   */
  readonly start:
    | { readonly kind: 'input'; readonly checkpoint?: CheckpointReference | 'none' }
    | { readonly kind: 'continue' };
  readonly timeoutMs: number;
  /** Instructions to trace child runs. If absent, child runs are not traced. */
  readonly trace?: TraceInstructions;
}

/** One event that a graph streamed. */
export type Chunk = Pick<StreamEvent, 'mode' | 'event' | 'namespace' | 'data'>;

/** Maximum size of one event that a graph streams. The event log and each client handle it as one message. */
export const maxEventBytes = 8 * 1024 ** 2;

/** Fixed cost of an event in addition to its data and names: its log record, and objects in the worker and its parent. */
const eventOverheadBytes = 256;

export function computeEventCost({ mode, event, namespace, data }: Chunk): number {
  return data.byteLength + mode.length + event.length + namespace.length + eventOverheadBytes;
}

/** State that a stopped or failed run leaves. Absent if it could not be read. */
type LeftState = Partial<Pick<RunState, 'values' | 'interrupts'>>;

/** How an attempt ended. The `values` of a finished run are the body of `wait` and `join` responses. */
export type RunOutcome =
  | ({ readonly kind: 'finished' } & RunState)
  /** The run was stopped. A worker reports a stopped run with `values` as `failed`, with this kind as `error`. */
  | ({ readonly kind: 'cancelled' | 'timeout' } & LeftState)
  /** The graph threw. `error` is the class name of the error. */
  | ({ readonly kind: 'failed'; readonly error: string; readonly message: string } & LeftState)
  /** The lease was lost: another process owns the run. */
  | { readonly kind: 'fenced' }
  /**
   * The attempt ended without a result. `worker`: the worker failed (crash, blocked event loop, protocol violation)
   * while it executed only this run; `shared-worker`: it failed while it executed several runs, or code of an earlier
   * one; `external`: an external signal killed the worker, the parent process is shutting down, or the database was
   * unavailable.
   */
  | ({
      readonly kind: 'lost';
      readonly cause: 'worker' | 'shared-worker' | 'external';
      readonly message: string;
    } & LeftState);

/** Selects a state of a thread. */
export interface StateQuery {
  readonly checkpoint?: CheckpointReference;
  readonly subgraphs: boolean;
  /** The fields to return. Default: all. */
  readonly select?: readonly string[];
}

/** Selects states of a thread. */
export interface HistoryQuery {
  readonly limit: number;
  /** If set, only states that are older than this checkpoint are returned. */
  readonly before?: CheckpointReference;
  /** If set, the history of the subgraph of this checkpoint is returned. */
  readonly checkpoint?: CheckpointReference;
  /** Members that the metadata of each returned state must contain. */
  readonly metadata?: Readonly<Record<string, unknown>>;
  /** The fields of each state to return. Default: all. */
  readonly select?: readonly string[];
}

export interface StateUpdate {
  readonly values?: unknown;
  readonly command?: unknown;
  /** If set, the update is applied as if this node had returned it. */
  readonly as_node?: string;
}

/** A query that a worker answers with graph code. The answer is JSON text. */
export type GraphRequest =
  | ({ readonly kind: 'state'; readonly thread: GraphThread } & StateQuery)
  /** `limitBytes`: default: no limit. */
  | ({ readonly kind: 'history'; readonly thread: GraphThread; readonly limitBytes?: number } & HistoryQuery)
  | {
      readonly kind: 'update-state';
      readonly thread: GraphThread;
      /** The thread's `write_token`. */
      readonly leaseToken: string;
      readonly checkpoint?: CheckpointReference;
      readonly updates: readonly StateUpdate[][];
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

export interface GraphThread {
  readonly deploymentId: string;
  readonly threadId: string;
  readonly graphId: string;
  /** Config of the thread's assistant; `configurable` has no thread_id. */
  readonly config: object;
}

export interface WorkerSetup {
  readonly graphs: readonly GraphSource[];
  /** Reasons why graphs were unusable in earlier processes, by graph id. The process does not import these graphs. */
  readonly loadErrors?: Readonly<Record<string, string>>;
  /** Set only for the auth process. A load error is reported in `loadErrors` as `auth`. */
  readonly auth?: ExportReference;
  /**
   * Set only for the process of the custom app. A load error is reported in `loadErrors` as `app`. A relative socket
   * path is resolved against TMPDIR.
   */
  readonly app?: ExportReference & { readonly socketPath: string };
  /**
   * Store settings; `folder` is the base of relative paths. If absent, the store has no index and items do not expire.
   */
  readonly store?: GraphsFile['store'] & { readonly folder: string };
  /** Connection to Postgres. If absent, the process keeps state in its own memory. */
  readonly database?: { readonly url: string; readonly authorities?: readonly string[] };
  /** URL of this agent server. If absent, project code must configure a URL to call the server. */
  readonly serverUrl?: string;
  readonly maxConnections: number;
  readonly maxEventBytes: number;
  /** Send window of a run: maximum cost of its unacknowledged events. */
  readonly windowBytes: number;
  /** Maximum cost of the buffered events of all runs of the process. */
  readonly maxBufferedBytes: number;
  readonly heartbeatMs: number;
}

export type MessageToWorker =
  | { readonly kind: 'setup'; readonly setup: WorkerSetup }
  | { readonly kind: 'run'; readonly key: number; readonly job: Omit<RunJob, 'alone' | 'timeoutMs'> }
  | { readonly kind: 'cancel'; readonly key: number; readonly why: 'cancelled' | 'timeout' }
  /** Acknowledges published events: frees `bytes` of the run's send window. */
  | { readonly kind: 'ack'; readonly key: number; readonly bytes: number }
  | { readonly kind: 'query'; readonly key: number; readonly request: GraphRequest }
  | {
      readonly kind: 'auth';
      readonly key: number;
      readonly request: { readonly identify: AuthRequest } | { readonly authorize: AuthorizationRequest };
    };

export type MessageFromWorker =
  /** The worker imports the module of this graph next. If no message follows, that module ended the process. */
  | { readonly kind: 'loading'; readonly graphId: string }
  /** The process has loaded its modules. `routes` are the routes that the custom app declares. */
  | {
      readonly kind: 'ready';
      readonly loadErrors: Readonly<Record<string, string>>;
      readonly routes: readonly AppRoute[];
      /** Node names by graph id, for graphs whose nodes are known before they run. */
      readonly nodes: Readonly<Record<string, GraphNodes>>;
    }
  | { readonly kind: 'heartbeat' }
  | { readonly kind: 'chunks'; readonly key: number; readonly chunks: readonly Chunk[] }
  | { readonly kind: 'traced'; readonly key: number; readonly traced: ChildRunBatch }
  /** `nodes`: number of nodes that the attempt has executed. */
  | { readonly kind: 'ended'; readonly key: number; readonly nodes: number; readonly outcome: RunOutcome }
  | { readonly kind: 'response'; readonly key: number; readonly json: string }
  | { readonly kind: 'query-error'; readonly key: number; readonly error: SerializedError }
  /** An error was thrown outside of any run; the process exits. */
  | { readonly kind: 'dying'; readonly reason: string }
  /** A part of the langgraph.json that all graphs need is unusable; the process exits. */
  | { readonly kind: 'unusable'; readonly error: SerializedError };

/** A `RunlakeError` in serialisable form. */
export interface SerializedError {
  readonly code: ErrorCode;
  readonly params: Readonly<Record<string, string | number>>;
}
