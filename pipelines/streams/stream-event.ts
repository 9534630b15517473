/**
 * One event of a run's stream, as written to the log. UUIDs are in lower case with dashes; times are in microseconds
 * since 1970. A redelivered event must be equal in every field.
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
  /** Sequence number within the attempt; it increases in log order. */
  readonly seq: number;
  /**
   * Sequence number within the thread; it increases in log order across all runs and attempts. It is the number of the
   * start (of a run or state update) times {@link seqNumbersPerStart}, plus `seq`.
   */
  readonly threadSeq: number;
  /** Stream mode of the event; for an event that is sent in every mode, the name of the event. */
  readonly mode: string;
  /** Event name on the wire, without the namespace. */
  readonly event: string;
  /** Namespace parts joined by `|`; empty for the root namespace. */
  readonly namespace: string;
  /** Data of the event as JSON text, unchanged. */
  readonly data: Uint8Array;
  /** Whether this is the last event of the run, which is sent after the run's final state has been committed. */
  readonly isEnd: boolean;
  /** Whether the event is stored for subscriptions that start later. */
  readonly kept: boolean;
  readonly createdAtMicros: number;
  /** Time when the event expires, if it is stored. */
  readonly expiresAtMicros: number;
}

/** Returns whether two events have the same mode, name and namespace. */
export function hasSameName(one: StreamEventName, other: StreamEventName): boolean {
  return one.mode === other.mode && one.event === other.event && one.namespace === other.namespace;
}

export type StreamEventName = Pick<StreamEvent, 'mode' | 'event' | 'namespace'>;

/** Number of thread sequence numbers of each start in a thread. */
export const seqNumbersPerStart = 2 ** 32;
