/**
 * The port of the event log: the ordered, durable log between the processes that accept events and those that store
 * them; and the port of its dead-letter queue. Adapters: in-process (`in-process/`, with a table in Postgres as the
 * queue) and Kafka (`kafka/`). The contract suites `test/contract/event-log` and `test/contract/dead-letters` run
 * against each adapter.
 */
import type { Topic } from '../../schemas/topics.ts';
import { type RunlakeError, runlakeError } from '../errors/runlake-error.ts';
import type { Sql } from '../postgres/pool.ts';

/** One event to publish. Events with the same key keep their order and go to the same consumer. */
export interface LogMessage {
  readonly key: string;
  /** In Confluent's wire format, see `avro.ts`. */
  readonly value: Buffer;
  readonly headers?: Readonly<Record<string, string>>;
}

/** One event as read by a consumer. Consumers and followers may share the value, so copy it before changing it. */
export interface LogRecord {
  readonly partition: number;
  readonly offset: number;
  readonly key: string;
  readonly value: Buffer;
  readonly headers: Readonly<Record<string, string>>;
  /**
   * Orders the events of a key by acceptance: of two events that set the same value, the one with the higher version
   * wins, whichever is stored first. A UInt64: milliseconds since 1970 in the upper 42 bits, then the lower bits of the
   * offset. A replayed dead-letter record has the version that it had before, from the header {@link versionHeader}.
   */
  readonly version: bigint;
}

export interface DirtyHour {
  readonly tenantId: string;
  /** Start of the hour, in seconds since 1970. */
  readonly hourSeconds: number;
}

/** Consecutive records of one partition of one topic, in the order of the log. */
export interface LogBatch {
  readonly topic: Topic;
  readonly partition: number;
  readonly records: readonly LogRecord[];
}

/** A position in a topic: an offset per partition; empty if the log has no offsets. */
export type LogPosition = Readonly<Record<string, number>>;

/** Name of the consumer group that stores a topic. */
export const storingGroup = (topic: Topic) => `sink-${topic.name}`;

/** Header that holds the version of a dead-letter record, as a decimal. */
export const versionHeader = 'runlake-version';

const offsetBits = 22n;
const offsetMask = (1n << offsetBits) - 1n;

/**
 * Computes {@link LogRecord.version}. Of two events that were accepted in the same millisecond the one with the higher
 * offset wins, unless a multiple of four million lies between their offsets.
 */
export function recordVersion(acceptedAtMs: number, offset: number, headers: LogRecord['headers']): bigint {
  const given = headers[versionHeader];
  if (given !== undefined && /^\d{1,20}$/.test(given)) return BigInt.asUintN(63, BigInt(given));
  return (BigInt(acceptedAtMs) << offsetBits) | (BigInt(offset) & offsetMask);
}

export interface Subscription {
  readonly topic: Topic;
  /** Consumer group. A batch is acknowledged and committed after every group of the topic has handled it. */
  readonly group: string;
  /** Limits of a batch; a single event that exceeds them is delivered alone. */
  readonly limits: { readonly rows: number; readonly bytes: number };
  /**
   * Resolves when all events of the batch are durable. If it rejects, the batch stays uncommitted: its publishers get
   * an error, or the log redelivers it.
   */
  handle(batch: LogBatch): Promise<void>;
}

/**
 * Options for following a topic: reading its events as they come, without a consumer group and without storing
 * anything.
 */
export interface FollowOptions {
  /** How far back to start, if the log stores events; the in-process log does not. Default: now. */
  readonly sinceMs?: number;
  /**
   * Receives the records of a partition in log order as soon as they have an offset, which may be before they are
   * durable. After an outage some records may be repeated. The call must finish its work before it returns: the log
   * buffers nothing for followers, so that none can delay publishers or increase memory. If it throws, the event log
   * writes the error to the application log and continues with the next records.
   */
  onRecords(records: readonly LogRecord[]): void;
}

export interface TopicFollower {
  /** Starting offset of each partition. A partition that is added later is read from its beginning. */
  readonly from: LogPosition;
  /** Returns true if the follower has delivered all events before `position`. */
  hasDelivered(position: LogPosition): boolean;
  /** Resolves when no further records are delivered. */
  close(): Promise<void>;
}

export interface EventLog {
  /** Returns the id of the schema with which new events of `topic` are written. */
  schemaId(topic: Topic): number;
  /** Returns the schema with that id as JSON text; `undefined` if it does not exist. */
  getSchema(schemaId: number): Promise<string | undefined>;
  /**
   * Publishes messages. Resolves when the whole batch is durable, except messages of a topic with `storedIf` whose flag
   * is false: they are for followers only and may reach no consumer group.
   * @param onOffsetsAssigned is called when the batch has its offsets, at the latest before `publish` resolves. Events
   * published
   *   from then on have later offsets, even if this batch fails afterwards. Not called if the batch fails before.
   * @throws OVERLOADED if too many bytes are pending, EVENT_LOG_UNAVAILABLE if the batch cannot be made durable now,
   *   DRAINING after {@link EventLog.close} was called.
   */
  publish(topic: Topic, messages: readonly LogMessage[], onOffsetsAssigned?: () => void): Promise<void>;
  subscribe(subscription: Subscription): Promise<void>;
  /**
   * Follows `topic` outside its consumer groups. Resolves when all events that were in the log at the call were passed
   * on. Later events follow, also across outages of the log.
   * @throws EVENT_LOG_UNAVAILABLE if the log cannot be read now, DRAINING after {@link EventLog.close} was called.
   */
  follow(topic: Topic, options: FollowOptions): Promise<TopicFollower>;
  /**
   * Writes a record that can never be stored to the dead-letter queue, with its original bytes and headers. Resolves
   * when it is durable. If the queue is in the same database, the write is part of `transaction`. Otherwise it is
   * durable before the transaction commits, and a retry after a crash may leave a second record of the same topic,
   * partition and offset, which readers treat as one.
   */
  deadLetter(topic: Topic, record: LogRecord, reason: string, step: string, transaction?: Sql): Promise<void>;
  /** Set if the log does not redeliver batches after a crash. */
  readonly inFlightInserts?: InFlightInserts;
  /**
   * Returns the current log-end offsets of the topic. Every event that was published before the call has a lower
   * offset. For {@link EventLog.stored}.
   * @throws if the log cannot be read.
   */
  position(topic: Topic): Promise<LogPosition>;
  /**
   * Returns true if the consumers that store the topic, in any process, have consumed all events before `position`,
   * which comes from {@link EventLog.position} or from the offsets of records.
   * @throws if the log cannot be read.
   */
  isStored(topic: Topic, position: LogPosition): Promise<boolean>;
  /** @throws if the log cannot accept events now. */
  check(): Promise<void>;
  /** Finishes what was accepted, then closes the log. */
  close(): Promise<void>;
}

/** An insert whose rows may be stored, although its publishers got no response. */
export interface InFlightInsert {
  /** Id of the insert, and prefix of the ids of its ClickHouse queries. */
  readonly id: string;
  /** Usage hours that the rows belong to. */
  readonly hours: readonly DirtyHour[];
}

/** Durable records of the inserts that are in flight. */
export interface InFlightInserts {
  /** Resolves when the record is durable. */
  begin(insert: InFlightInsert): Promise<void>;
  /** Deletes the record, in the transaction that marks its hours dirty. */
  complete(id: string, transaction: Sql): Promise<void>;
  /** Returns the inserts that were begun and not completed, oldest first. */
  list(): Promise<InFlightInsert[]>;
}

/** Creates the error of {@link EventLog.publish} and {@link EventLog.follow} after {@link EventLog.close}. */
export function drainingError(): RunlakeError {
  return runlakeError('DRAINING', {}, { retryAfterSeconds: 1 });
}

/** Creates the error of {@link EventLog.publish} if too many bytes are pending. */
export function overloadedError(): RunlakeError {
  const what = 'events for the log, a quarter of RUNLAKE_MEMORY_BYTES';
  return runlakeError('OVERLOADED', { what }, { retryAfterSeconds: 1 });
}

/** The metadata of a dead-letter record, as lists show it. */
export interface DeadLetterHead {
  /** Id of the dead-letter record: `<topic>/…`. */
  readonly id: string;
  /** Topic that the event was published to; partition and offset refer to it. */
  readonly topic: string;
  readonly partition: number;
  readonly offset: number;
  readonly key: string;
  readonly sizeBytes: number;
  readonly reason: string;
  /** Step that refused the event: `framing`, `schema`, `walk`, `key`, `insert` or `defer`. */
  readonly step: string;
  /** Time at which it was written to the queue, in milliseconds since 1970. */
  readonly deadAtMs: number;
}

/** A record that could not be stored. */
export interface DeadLetterRecord extends DeadLetterHead {
  /** The original bytes of the event. */
  readonly value: Buffer;
  /** The original headers. */
  readonly headers: Readonly<Record<string, string>>;
}

export interface DeadLetterFilter {
  readonly topics: readonly Topic[];
  readonly step?: string | undefined;
  /** Only records written to the queue at this time or later, in milliseconds since 1970. */
  readonly sinceMs?: number | undefined;
  /** Only records written to the queue at this time or earlier, in milliseconds since 1970. */
  readonly untilMs?: number | undefined;
}

/** Reads the records that {@link EventLog.deadLetter} has written. */
export interface DeadLetterQueue {
  /** Returns the newest matching records, newest first. Does not read values if the store can omit them. */
  list(filter: DeadLetterFilter, limit: number): Promise<DeadLetterHead[]>;
  /** Returns the number of records of the topic, including replayed ones, and at most {@link maxCounted}. */
  count(topic: Topic): Promise<number>;
  /** Returns `undefined` if no record has that id, or if the record no longer exists. */
  find(id: string): Promise<DeadLetterRecord | undefined>;
  close(): Promise<void>;
}

/** Maximum result of {@link DeadLetterQueue.count}, so that counting stays cheap. */
export const maxCounted = 100_000;
