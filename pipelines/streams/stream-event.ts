/**
 * One event of a run's stream as written to the log. UUIDs are lower case with dashes, times are microseconds since
 * 1970. A redelivered event must be equal in every field.
 */
export interface StreamEvent {
  /**
   * The topic and the table call this field `organization_id`, because each organisation used to have one deployment.
   */
  readonly deploymentId: string;
  /** Id of the thread; for a run without a thread, the id of its hidden thread. */
  readonly threadId: string;
  readonly runId: string;
  /** Number of the attempt, starting at 1. */
  readonly attempt: number;
  /** Sequence number within the attempt, increasing along the log. */
  readonly seq: number;
  /** Sequence number within the thread, increasing along the log over all runs and attempts. */
  readonly threadSeq: number;
  /** Stream mode of the event; for an event that is sent in every mode, the name of the event. */
  readonly mode: string;
  /** Event name on the wire, without the namespace. */
  readonly event: string;
  /** Namespace parts joined by `|`; empty at the root. */
  readonly namespace: string;
  /** JSON text, unchanged. */
  readonly data: Uint8Array;
  /** Whether this is the last event of the run, sent after the run's final state is committed. */
  readonly isEnd: boolean;
  /** Whether the event is stored for subscriptions that start later. */
  readonly kept: boolean;
  readonly createdAtMicros: number;
  /** Expiry time if the event is stored. */
  readonly expiresAtMicros: number;
}

/** Whether two events have the same mode, name and namespace. */
export function isNamedAlike(one: StreamEventName, other: StreamEventName): boolean {
  return one.mode === other.mode && one.event === other.event && one.namespace === other.namespace;
}

export type StreamEventName = Pick<StreamEvent, 'mode' | 'event' | 'namespace'>;
