import type { Sender } from '../../ingest/accept/draft.ts';
import type { Interrupt } from '../threads/thread.ts';
import type { RunIds, RunKwargs, RunStatus } from './run.ts';

/** Columns of `agents.runs` that form a `Run`. Each column has the name of its field. */
export const runColumns =
  'run_id, thread_id, assistant_id, created_at, updated_at, status, metadata, kwargs, multitask_strategy';

/** What claimed and ended runs have in common. */
interface StartedRun extends RunIds {
  readonly assistantId: string;
  readonly graphId: string;
  /** Number of the last attempt, starting at 1; 0 if the run never started. */
  readonly attempt: number;
  /** Number of run starts on the thread so far, including this one. */
  readonly threadStart: number;
  readonly kwargs: RunKwargs;
  readonly metadata: Readonly<Record<string, unknown>>;
  /** The sender of the run, for its trace. Missing fields default to those of the deployment. */
  readonly sender?: Partial<Sender>;
  /** Start time of the first attempt. */
  readonly startedAt: string;
}

/** A run whose lease this process holds. */
export interface ClaimedRun extends StartedRun {
  readonly leaseToken: string;
  /** Newest checkpoint of the thread at the first start of the run; undefined if there was none. */
  readonly baseCheckpointId: string | undefined;
  /** Whether the run must be the only run in its worker. */
  readonly alone: boolean;
}

/** The error of a failed run, as sent to clients. */
export interface RunFailure {
  /** Class name of the error. */
  readonly error: string;
  readonly message: string;
}

/** A run whose final state is committed. */
export interface EndedRun extends StartedRun {
  readonly status: Exclude<RunStatus, 'pending' | 'running'>;
  readonly error?: RunFailure;
  /** JSON text of the final state, if the run has one. */
  readonly values?: string;
  readonly endedAt: string;
  /** Whether the run was rolled back or deleted. */
  readonly removed: boolean;
  /** Whether the event log lacks events of the last attempt. */
  readonly eventsMissing: boolean;
  /** Whether the graph is interrupted: it waits for a resume value or has next nodes. */
  readonly interrupted?: boolean;
  /** Interrupts by task id. */
  readonly interrupts?: Readonly<Record<string, readonly Interrupt[]>>;
  /** Whether the row of the thread can lack state that the run has stored, because the process of the run has died. */
  readonly hasUnreadState?: boolean;
}

/** The columns of a {@link StartedRun}. */
interface StartedRow {
  readonly deployment_id: string;
  readonly thread_id: string;
  readonly run_id: string;
  readonly assistant_id: string;
  readonly graph_id: string;
  readonly attempt: number;
  readonly thread_start: number;
  readonly kwargs: RunKwargs;
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly sender: Partial<Sender> | null;
  readonly started_at: string;
}

export const claimedColumns = `deployment_id, thread_id, run_id, assistant_id, graph_id, attempt, lease_token, thread_start,
  base_checkpoint_id, alone, kwargs, metadata, sender, started_at`;

export interface ClaimedRow extends StartedRow {
  readonly lease_token: string;
  readonly base_checkpoint_id: string | null;
  readonly alone: boolean;
}

/** Columns of an {@link EndedRow}, for statements in which the runs have the alias `run`. */
export const endedColumns = `run.deployment_id, run.thread_id, run.run_id, run.assistant_id, run.graph_id, run.attempt,
  run.thread_start, run.status, run.error, run.kwargs, run.metadata, run.sender,
  coalesce(run.started_at, run.ended_at) AS started_at, run.ended_at, run.removed, run.events_missing`;

export interface EndedRow extends StartedRow {
  readonly status: EndedRun['status'];
  readonly error: RunFailure | null;
  readonly ended_at: string;
  readonly removed: boolean;
  readonly events_missing: boolean;
}

export function toClaimedRun(row: ClaimedRow): ClaimedRun {
  return {
    ...toStartedRun(row),
    leaseToken: row.lease_token,
    baseCheckpointId: row.base_checkpoint_id ?? undefined,
    alone: row.alone,
  };
}

/** @param values JSON text of the final state, if it is known. */
export function toEndedRun(row: EndedRow, values: string | null | undefined): EndedRun {
  return {
    ...toStartedRun(row),
    status: row.status,
    ...(row.error && { error: row.error }),
    ...(values != null && { values }),
    endedAt: row.ended_at,
    removed: row.removed,
    eventsMissing: row.events_missing,
  };
}

function toStartedRun(row: StartedRow): StartedRun {
  return {
    deploymentId: row.deployment_id,
    threadId: row.thread_id,
    runId: row.run_id,
    assistantId: row.assistant_id,
    graphId: row.graph_id,
    attempt: row.attempt,
    threadStart: row.thread_start,
    kwargs: row.kwargs,
    metadata: row.metadata,
    ...(row.sender && { sender: row.sender }),
    startedAt: row.started_at,
  };
}
