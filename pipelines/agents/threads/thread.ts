/** A thread and its state, with their field names on the wire. Source: SPEC 2.10; openapi/agent-server.json. */
import type { CheckpointChoice } from '../runs/run.ts';

export const threadStatuses = ['idle', 'busy', 'interrupted', 'error'] as const;
export type ThreadStatus = (typeof threadStatuses)[number];

export type TtlStrategy = 'delete' | 'keep_latest';

export interface Interrupt {
  readonly id?: string;
  readonly value: unknown;
  readonly [key: string]: unknown;
}

export interface Thread {
  readonly thread_id: string;
  readonly created_at: string;
  readonly updated_at: string;
  readonly state_updated_at: string;
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly status: ThreadStatus;
  readonly config: Readonly<Record<string, unknown>>;
  readonly values: unknown;
  /** By task id. */
  readonly interrupts: Readonly<Record<string, readonly Interrupt[]>>;
  readonly error: unknown;
  /** Present only if requested. */
  readonly ttl?: { readonly strategy: TtlStrategy; readonly ttl_minutes: number; readonly expires_at: string };
}

export interface ThreadCheckpoint extends CheckpointChoice {
  readonly thread_id: string;
}

export interface ThreadTask {
  readonly id: string;
  readonly name: string;
  readonly path?: unknown;
  readonly error: string | null;
  readonly interrupts: readonly Interrupt[];
  readonly checkpoint: ThreadCheckpoint | null;
  readonly state: ThreadState | null;
  readonly result: unknown;
}

export interface ThreadState {
  readonly values: unknown;
  readonly next: readonly string[];
  readonly tasks: readonly ThreadTask[];
  readonly checkpoint: ThreadCheckpoint | null;
  readonly parent_checkpoint: ThreadCheckpoint | null;
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly created_at: string | null;
  readonly interrupts: readonly Interrupt[];
}
