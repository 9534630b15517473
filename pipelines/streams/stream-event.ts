/**
 * One event of a run's stream, as it goes into the log. UUIDs are lower case with dashes, times microseconds since 1970.
 * The same event sent again must be the same in every field.
 */
export interface StreamEvent {
  /** The field `organization_id` of topic and table, which has its name from the time when each organisation had one deployment. */
  readonly deploymentId: string;
  /** The hidden one for a run without a thread. */
  readonly threadId: string;
  readonly runId: string;
  /** From 1. */
  readonly attempt: number;
  /** Within the attempt, rising along the log. */
  readonly seq: number;
  /** Within the thread, rising along the log over runs and attempts. */
  readonly threadSeq: number;
  /** Stream mode that it belongs to; for events of every mode their own name. */
  readonly mode: string;
  /** Name on the wire, without the namespace. */
  readonly event: string;
  /** Parts joined with a bar; empty at the root. */
  readonly namespace: string;
  /** JSON text as it came. */
  readonly data: Uint8Array;
  /** Nothing of the run follows, and its final state is committed. */
  readonly isEnd: boolean;
  /** Whether it is stored for those who join later. */
  readonly kept: boolean;
  readonly createdAtMicros: number;
  /** Until when it can be read where it is kept. */
  readonly expiresAtMicros: number;
}

/** Whether two events have their mode, name and namespace in common. */
export function isNamedAlike(one: StreamEventName, other: StreamEventName): boolean {
  return one.mode === other.mode && one.event === other.event && one.namespace === other.namespace;
}

export type StreamEventName = Pick<StreamEvent, 'mode' | 'event' | 'namespace'>;
