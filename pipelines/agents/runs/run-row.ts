import type { Interrupt } from '../threads/thread.ts';
import type { MultitaskStrategy, Run, RunKwargs, RunStatus } from './run.ts';

/** Columns of `agents.runs` that a {@link Run} is made of. */
export const runColumns =
  'run_id, thread_id, assistant_id, created_at, updated_at, status, metadata, kwargs, multitask_strategy';

/** A run as it is stored is as it is shown. */
export type RunRow = Run;

/** Who a run is of, as runs of traces name them; what a run does not say of it is the deployment's. */
export interface RunSender {
  readonly workspaceId: string;
  readonly userId: string;
  readonly keyId: string;
}

/** A run of which this process holds the lease. */
export interface ClaimedRun {
  readonly deploymentId: string;
  readonly threadId: string;
  readonly runId: string;
  readonly assistantId: string;
  readonly graphId: string;
  /** From 1. */
  readonly attempt: number;
  readonly leaseToken: string;
  /** Starts of runs on the thread so far, this one included. */
  readonly threadStart: number;
  /** The head of the thread when the run was first started; undefined: there was none. */
  readonly baseCheckpointId: string | undefined;
  /** Whether it has to be alone in its worker. */
  readonly alone: boolean;
  readonly kwargs: RunKwargs;
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly sender?: Partial<RunSender>;
  /** Of the first attempt. */
  readonly startedAt: string;
}

/** What a client is told of a run that failed. */
export interface RunFailure {
  /** Name of the class of the error. */
  readonly error: string;
  readonly message: string;
}

/** A run whose final state is committed. */
export interface EndedRun {
  readonly deploymentId: string;
  readonly threadId: string;
  readonly runId: string;
  readonly assistantId: string;
  readonly graphId: string;
  /** 0: it was never started. */
  readonly attempt: number;
  readonly threadStart: number;
  readonly status: Exclude<RunStatus, 'pending' | 'running'>;
  readonly error?: RunFailure;
  /** JSON text of the state at the end, where the run left one. */
  readonly values?: string;
  readonly kwargs: RunKwargs;
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly multitaskStrategy: MultitaskStrategy;
  readonly sender?: Partial<RunSender>;
  readonly createdAt: string;
  readonly startedAt: string;
  readonly endedAt: string;
  /** Rolled back. */
  readonly removed: boolean;
  /** The log did not take all events of the last attempt. */
  readonly eventsMissing: boolean;
  /** The graph waits, for an answer or to go on. */
  readonly interrupted?: boolean;
  /** What it waits for, by task. */
  readonly interrupts?: Readonly<Record<string, readonly Interrupt[]>>;
}

/** What rows of runs that were claimed and of runs that ended both have. */
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
  readonly sender: Partial<RunSender> | null;
  readonly started_at: string;
}

export const claimedColumns = `deployment_id, thread_id, run_id, assistant_id, graph_id, attempt, lease_token, thread_start,
  base_checkpoint_id, alone, kwargs, metadata, sender, started_at`;

export interface ClaimedRow extends StartedRow {
  readonly lease_token: string;
  readonly base_checkpoint_id: string | null;
  readonly alone: boolean;
}

/** Of an ended row and, where its thread still shows what this run left, the thread's values. */
export const endedColumns = `run.deployment_id, run.thread_id, run.run_id, run.assistant_id, run.graph_id, run.attempt,
  run.thread_start, run.status, run.error, run.kwargs, run.metadata, run.multitask_strategy, run.sender, run.created_at,
  coalesce(run.started_at, run.ended_at) AS started_at, run.ended_at, run.removed, run.events_missing`;

export interface EndedRow extends StartedRow {
  readonly status: EndedRun['status'];
  readonly error: RunFailure | null;
  readonly multitask_strategy: MultitaskStrategy;
  readonly created_at: string;
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

export function toEndedRun(row: EndedRow, values: string | null | undefined): EndedRun {
  return {
    ...toStartedRun(row),
    status: row.status,
    ...(row.error && { error: row.error }),
    ...(values != null && { values }),
    multitaskStrategy: row.multitask_strategy,
    createdAt: row.created_at,
    endedAt: row.ended_at,
    removed: row.removed,
    eventsMissing: row.events_missing,
  };
}

function toStartedRun(row: StartedRow) {
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
