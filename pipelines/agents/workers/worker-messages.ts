/** Messages between the parent process and its worker processes. `message-codec.ts` defines their encoding. */
import type { ErrorCode } from '../../../infra/errors/catalogue.ts';
import type { AppRoute } from '../app/app-route.ts';
import type { AuthorizationRequest, AuthRequest } from '../auth/agent-user.ts';
import type { GraphNodes } from '../graphs/graph-nodes.ts';
import type { ExportReference, GraphSource, GraphsFile } from '../graphs/graphs-file.ts';
import type { ChildRunBatch } from '../traces/trace-order.ts';
import type { Chunk, GraphRequest, RunJob, RunOutcome } from './worker-pool.ts';

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

export type ToWorker =
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

export type FromWorker =
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
  | { readonly kind: 'ended'; readonly key: number; readonly outcome: RunOutcome }
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
