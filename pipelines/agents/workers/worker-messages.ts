/** Messages between the front and its worker processes. How they are written: `message-codec.ts`. */
import type { ErrorCode } from '../../../infra/errors/catalogue.ts';
import type { AppRoute } from '../app/app-route.ts';
import type { AuthQuestion, AuthRequest } from '../auth/agent-user.ts';
import type { GraphNodes } from '../graphs/graph-nodes.ts';
import type { ExportReference, GraphSource, GraphsFile } from '../graphs/graphs-file.ts';
import type { TracedRuns } from '../traces/trace-order.ts';
import type { PackedChunks } from './packed-chunks.ts';
import type { GraphRequest, RunJob, RunOutcome } from './worker-pool.ts';

export interface WorkerSetup {
  readonly graphs: readonly GraphSource[];
  /** Why the others of the file cannot be used, by graph: found by processes before this one. */
  readonly faults?: Readonly<Record<string, string>>;
  /** Of the one process that answers for custom authentication; its fault is called `auth`. */
  readonly auth?: ExportReference;
  /** Of the one process that serves the custom app; its fault is called `app`. A relative path starts from TMPDIR. */
  readonly app?: ExportReference & { readonly socketPath: string };
  /** With the folder from which the path in it starts. Absent: no index, and nothing runs out. */
  readonly store?: GraphsFile['store'] & { readonly folder: string };
  /** Postgres; absent: state lives in this process alone. */
  readonly database?: { readonly url: string; readonly authorities?: readonly string[] };
  /** Where this agent server answers. Absent: code of the project does not reach it without a URL of its own. */
  readonly serverUrl?: string;
  readonly maxConnections: number;
  readonly maxEventBytes: number;
  /** Send window of a run: what its unacknowledged events may cost. */
  readonly windowBytes: number;
  /** What events of all runs here that wait for their send windows may cost. */
  readonly maxBufferedBytes: number;
  readonly beatMs: number;
}

export type ToWorker =
  | { readonly kind: 'setup'; readonly setup: WorkerSetup }
  | { readonly kind: 'run'; readonly key: number; readonly job: Omit<RunJob, 'alone' | 'timeoutMs'> }
  | { readonly kind: 'cancel'; readonly key: number; readonly why: 'cancelled' | 'timeout' }
  /** The log has taken events of the run that cost this much. */
  | { readonly kind: 'ack'; readonly key: number; readonly bytes: number }
  | { readonly kind: 'ask'; readonly key: number; readonly request: GraphRequest }
  | {
      readonly kind: 'auth';
      readonly key: number;
      readonly request: { readonly identify: AuthRequest } | { readonly judge: AuthQuestion };
    };

export type FromWorker =
  /** The module of this graph is imported next: if nothing follows, it is what ended the process. */
  | { readonly kind: 'loading'; readonly graphId: string }
  /** `routes`: those that the custom app names. */
  | {
      readonly kind: 'ready';
      readonly faults: Readonly<Record<string, string>>;
      readonly routes: readonly AppRoute[];
      /** Of the graphs whose nodes are known before they run, by id. */
      readonly nodes: Readonly<Record<string, GraphNodes>>;
    }
  | { readonly kind: 'beat' }
  | { readonly kind: 'chunks'; readonly key: number; readonly packed: PackedChunks }
  | { readonly kind: 'traced'; readonly key: number; readonly traced: TracedRuns }
  | { readonly kind: 'ended'; readonly key: number; readonly outcome: RunOutcome }
  | { readonly kind: 'answer'; readonly key: number; readonly json: string }
  | { readonly kind: 'refusal'; readonly key: number; readonly refusal: Refusal }
  /** Something was thrown outside of any run: the process ends. */
  | { readonly kind: 'dying'; readonly reason: string }
  /** What the langgraph.json names for all graphs cannot be used: the process ends. */
  | { readonly kind: 'unfit'; readonly refusal: Refusal };

/** An error of the catalogue, as its parts. */
export interface Refusal {
  readonly code: ErrorCode;
  readonly params: Readonly<Record<string, string | number>>;
}
