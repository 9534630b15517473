/**
 * The port of the event log: an ordered, durable hand-over from those who accept events to those who store them.
 * Adapters: in-process (`in-process/`) and Kafka. One contract suite, `test/contract/event-log`, runs against each.
 */

/** One event to publish. Events of one key keep their order and meet one consumer. */
export interface LogMessage {
  readonly key: string;
  /** Confluent wire format: a zero byte, the schema id in four bytes, the Avro record. */
  readonly value: Buffer;
  readonly headers?: Readonly<Record<string, string>>;
}

/** One event as a consumer sees it. */
export interface LogRecord {
  readonly partition: number;
  readonly offset: number;
  readonly key: string;
  readonly value: Buffer;
  readonly headers: Readonly<Record<string, string>>;
}

/** Consecutive records of one partition of one topic, in the order of the log. */
export interface LogBatch {
  readonly topic: string;
  readonly partition: number;
  readonly records: readonly LogRecord[];
  /**
   * Writes `cut` down before its insert, so that after a crash it is replayed whole or known to have been under way.
   * Resolves when that is durable.
   */
  writeDownCut(cut: Cut): Promise<void>;
}

/** What an insert is about to do. */
export interface Cut {
  readonly token: string;
  /** Hours of usage that it touches. */
  readonly hours: readonly TouchedHour[];
}

export interface TouchedHour {
  readonly tenantId: string;
  /** Seconds since 1970, a whole hour. */
  readonly hourSeconds: number;
}

export interface Subscription {
  readonly topic: string;
  /** Durable consumers hold an acknowledgement until they have handled the batch. */
  readonly group: string;
  readonly limits: { readonly rows: number; readonly bytes: number };
  /**
   * Resolves when everything of the batch is durable; only then is the batch committed.
   * A rejection leaves it uncommitted: publishers hear of it or the batch comes again.
   */
  handle(batch: LogBatch): Promise<void>;
}

export interface EventLog {
  /**
   * Resolves when the whole batch is durable.
   * @throws OVERLOADED where too much is waiting, EVENT_LOG_UNAVAILABLE where it cannot be made durable now,
   *   DRAINING after {@link EventLog.close} was called.
   */
  publish(topic: string, messages: readonly LogMessage[]): Promise<void>;
  subscribe(subscription: Subscription): Promise<void>;
  /** Puts an event that cannot be stored aside, with its original bytes and headers. */
  deadLetter(topic: string, record: LogRecord, reason: string, step: string): Promise<void>;
  /** @throws where the log cannot take events now. */
  check(): Promise<void>;
  /** Finishes what was accepted, then ends. */
  close(): Promise<void>;
}
