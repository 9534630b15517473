/**
 * The ports of the event log and of its dead-letter queue. The event log is the ordered, durable log between accepting
 * events and storing them. Adapters: in-process (`in-process/`, with a table in ClickHouse for the events and one in
 * Postgres for the dead-letter records) and Kafka (`kafka/`). The contract test suites `test/contract/event-log` and
 * `test/contract/dead-letters` run against each adapter.
 */
import type { Topic } from '../../schemas/topics.ts';
import { type RunlakeError, runlakeError } from '../errors/runlake-error.ts';
import type { Sql } from '../postgres/pool.ts';
import { poll } from '../timeouts/poll.ts';

/** An event to publish. Events with the same key stay in order and go to the same consumer. */
export interface LogMessage {
  readonly key: string;
  /** The event in Confluent's wire format; see `avro.ts`. */
  readonly value: Buffer;
  readonly headers?: Readonly<Record<string, string>>;
}

/** An event as read by a consumer. Consumers and followers may share the value and must copy it before changing it. */
export interface LogRecord {
  readonly partition: number;
  readonly offset: number;
  readonly key: string;
  readonly value: Buffer;
  readonly headers: Readonly<Record<string, string>>;
  /**
   * Orders the events of a key by the time of acceptance. If two events set the same value, the event with the higher
   * version wins, regardless of which is stored first. The version is a UInt64: milliseconds since 1970 in the upper 41
   * bits, followed by the lower bits of the offset. A replayed dead-letter record keeps its previous version, which is
   * read from the header {@link versionHeader}.
   */
  readonly version: bigint;
}

export interface DirtyHour {
  readonly tenantId: string;
  /** Start of the hour, in seconds since 1970. */
  readonly hourSeconds: number;
}

/** Consecutive records of one partition of a topic, in log order. */
export interface LogBatch {
  readonly topic: Topic;
  readonly partition: number;
  readonly records: readonly LogRecord[];
}

/** A position in a topic: an offset for each partition. Partitions that are missing have no events before it. */
export type LogPosition = Readonly<Record<string, number>>;

/** Returns the name of the consumer group that stores a topic. */
export const getSinkGroup = (topic: Topic) => `sink-${topic.name}`;

/** Header that contains the version of a dead-letter record as a decimal number. */
export const versionHeader = 'runlake-version';

const offsetBits = 22n;
const offsetMask = (1n << offsetBits) - 1n;

/**
 * Computes {@link LogRecord.version}. If two events were accepted in the same millisecond, the event with the higher
 * offset wins, unless a multiple of four million lies between the two offsets.
 */
export function computeRecordVersion(acceptedAtMs: number, offset: number, headers: LogRecord['headers']): bigint {
  const given = headers[versionHeader];
  if (given !== undefined && /^\d{1,20}$/.test(given)) return BigInt.asUintN(63, BigInt(given));
  // In a topic of Kafka that keeps the times of its producers, a record may have any time.
  return BigInt.asUintN(63, (BigInt(Math.max(0, acceptedAtMs)) << offsetBits) | (BigInt(offset) & offsetMask));
}

/** Returns the time when a record was accepted, in milliseconds since 1970. */
export function readAcceptedAtMs({ version }: Pick<LogRecord, 'version'>): number {
  return Number(version >> offsetBits);
}

export interface Subscription {
  readonly topic: Topic;
  /** Consumer group. The log keeps the events of a batch until all groups of the topic have handled it. */
  readonly group: string;
  /** Limits of a batch. A single event that exceeds the limits is delivered in a batch of its own. */
  readonly limits: { readonly rows: number; readonly bytes: number };
  /**
   * Handles a batch. Resolves when all events of the batch are stored. If it rejects, the log delivers the batch again.
   */
  handle(batch: LogBatch): Promise<void>;
}

/**
 * Options for following a topic, that is, for reading its events as they arrive, without a consumer group and without
 * storing anything.
 */
export interface FollowOptions {
  /** Time at which to start, if the log keeps events. The in-process log does not. Default: now. */
  readonly sinceMs?: number;
  /**
   * Receives the records of a partition in log order as soon as they have an offset. They may not be durable at that
   * time. After an outage, some records may be repeated. The function must finish its work before it returns: the log
   * does not buffer records for followers, so that no follower can delay publishers or increase memory use. If the
   * function throws, the event log writes the error to the application log and continues with the next records.
   */
  onRecords(records: readonly LogRecord[]): void;
}

export interface TopicFollower {
  /** Start offset of each partition. A partition that is added later is read from its beginning. */
  readonly from: LogPosition;
  /** Returns true if the follower has delivered all events before `position`. */
  hasDelivered(position: LogPosition): boolean;
  /** Stops the follower. Resolves when no further records will be delivered. */
  close(): Promise<void>;
}

export interface EventLog {
  /** Returns the id of the schema that is used to write new events of `topic`. */
  schemaId(topic: Topic): number;
  /** Returns the schema with this id as JSON text. Returns `undefined` if the schema does not exist. */
  getSchema(schemaId: number): Promise<string | undefined>;
  /**
   * Publishes messages. Resolves when the whole batch is durable, except messages of a topic with `storedFlag` whose flag
   * is false: these messages are only for followers and may reach no consumer group.
   *
   * @param onOffsetsAssigned is called when the batch has its offsets, at the latest before `publish` resolves. Events
   *   that are published after this call have later offsets, even if this batch fails afterwards. It is not called if
   *   the batch fails before it has offsets.
   * @throws OVERLOADED if too many bytes are pending, EVENT_LOG_UNAVAILABLE if the batch cannot be made durable now,
   *   DRAINING after {@link EventLog.close} was called.
   */
  publish(topic: Topic, messages: readonly LogMessage[], onOffsetsAssigned?: () => void): Promise<void>;
  subscribe(subscription: Subscription): Promise<void>;
  /**
   * Follows `topic` without being part of its consumer groups. Resolves when all events that were in the log at the
   * time of the call have been delivered. Later events are delivered as they arrive, even after outages of the log.
   *
   * @throws EVENT_LOG_UNAVAILABLE if the log cannot be read now, DRAINING after {@link EventLog.close} was called.
   */
  follow(topic: Topic, options: FollowOptions): Promise<TopicFollower>;
  /**
   * Writes a record that can never be stored to the dead-letter queue, with its original bytes and headers. Resolves
   * when the record is durable. If the queue is in the same database, the write is part of `transaction`. Otherwise the
   * write is durable before the transaction commits, and a retry after a crash may write a second record with the same
   * topic, partition and offset; readers treat the two records as one.
   */
  deadLetter(topic: Topic, record: LogRecord, reason: string, step: DeadLetterStep, transaction?: Sql): Promise<void>;
  /** True if only this process consumes the log, so that it assigns all trace locations. */
  readonly isExclusive: boolean;
  /**
   * Resolves when the events are stored that this process has published for the organisation of the tenant context, but
   * after a few seconds at the latest, and at once while they cannot be stored. Later calls with the same context wait for
   * later events only if the context has published some. If other processes store the events, it resolves at once.
   */
  whenStored(): Promise<void>;
  /**
   * Returns the current log-end offsets of the topic, for {@link EventLog.isStored}. Every event that was published
   * before the call has a lower offset.
   *
   * @throws if the log cannot be read.
   */
  position(topic: Topic): Promise<LogPosition>;
  /**
   * Returns true if the consumers that store the topic, in any process, have consumed all events before `position`. The
   * position comes from {@link EventLog.position} or from the offsets of records.
   *
   * @throws if the log cannot be read.
   */
  isStored(topic: Topic, position: LogPosition): Promise<boolean>;
  /** Checks that the log can accept events. @throws if it cannot accept events now. */
  check(): Promise<void>;
  /** Finishes the work that was accepted, and then closes the log. */
  close(): Promise<void>;
}

/**
 * Waits until all events are stored that a log has accepted so far. Returns false after the timeout, or if `signal` is
 * aborted.
 */
export async function waitUntilStored(
  log: Pick<EventLog, 'position' | 'isStored'>,
  topic: Topic,
  { timeoutMs, signal }: { readonly timeoutMs: number; readonly signal?: AbortSignal | undefined },
): Promise<boolean> {
  const position = await log.position(topic);
  return poll(() => log.isStored(topic, position), { intervalMs: 500, timeoutMs, signal });
}

/**
 * Creates the error that {@link EventLog.publish} and {@link EventLog.follow} throw after {@link EventLog.close} was
 * called.
 */
export function createDrainingError(): RunlakeError {
  return runlakeError('DRAINING', {}, { retryAfterSeconds: 1 });
}

const bytesPerTimeout = 16 * 1024 ** 2;

/**
 * Returns the time limit for a log to accept a request of `bytes`: `timeoutMs` for each started 16 MiB. Otherwise, unless the
 * log is fast, the largest requests and all their retries would fail.
 */
export function computePublishTimeoutMs(timeoutMs: number, bytes: number): number {
  return timeoutMs * Math.max(1, Math.ceil(bytes / bytesPerTimeout));
}

/**
 * Returns whether a log with `pendingBytes` accepts a request of `bytes`. Of a request larger than half of the limit, only
 * half of the limit counts: otherwise it would be refused for ever while other events are pending.
 */
export function isWithinPendingLimit(pendingBytes: number, bytes: number, maxPendingBytes: number): boolean {
  return pendingBytes + Math.min(bytes, maxPendingBytes / 2) <= maxPendingBytes;
}

/** Creates the error that {@link EventLog.publish} throws if too many bytes are pending. */
export function createOverloadedError(): RunlakeError {
  const what = 'events for the log, a quarter of RUNLAKE_MEMORY_BYTES';
  return runlakeError('OVERLOADED', { what }, { retryAfterSeconds: 1 });
}

/** The metadata of a dead-letter record, as shown in lists. */
export interface DeadLetterHead {
  /** Id of the dead-letter record, in the form `<topic>/…`. */
  readonly id: string;
  /** Topic that the event was published to. The partition and the offset refer to this topic. */
  readonly topic: string;
  readonly partition: number;
  readonly offset: number;
  readonly key: string;
  readonly sizeBytes: number;
  readonly reason: string;
  /** Step that refused the event, one of {@link deadLetterSteps}. */
  readonly step: string;
  /** Time at which the record was written to the queue, in milliseconds since 1970. */
  readonly deadLetteredAtMs: number;
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
  /** Selects records that were written to the queue at or after this time, in milliseconds since 1970. */
  readonly sinceMs?: number | undefined;
  /** Selects records that were written to the queue at or before this time, in milliseconds since 1970. */
  readonly untilMs?: number | undefined;
}

/** Offsets of a partition of a dead-letter queue of Kafka, from `low` up to but excluding `high`. */
export interface DeadLetterRange {
  readonly partition: number;
  readonly low: number;
  readonly high: number;
}

/** Reads the records that {@link EventLog.deadLetter} wrote. */
export interface DeadLetterQueue {
  /** Returns the newest matching records, newest first. Does not read the values if the store allows it. */
  list(filter: DeadLetterFilter, limit: number): Promise<DeadLetterHead[]>;
  /** Returns the number of records of the topic that were not replayed, at most {@link maxCountedDeadLetters}. */
  countUnreplayed(topic: Topic): Promise<number>;
  /** Finds a record by id. Returns `undefined` if no record has this id or the record no longer exists. */
  find(id: string): Promise<DeadLetterRecord | undefined>;
  /**
   * Calls `use` with the records that have these ids, each once, one after the other. Omits ids without a record.
   *
   * @throws the errors of `use` as well; it is then not called again.
   */
  read(ids: readonly string[], use: (record: DeadLetterRecord) => Promise<void>): Promise<void>;
  close(): Promise<void>;
}

/** Steps that can refuse an event: reading its wire format, schema, fields and key, storing it, waiting for its trace. */
export const deadLetterSteps = ['framing', 'schema', 'walk', 'key', 'insert', 'defer'] as const;
export type DeadLetterStep = (typeof deadLetterSteps)[number];

/** Maximum result of {@link DeadLetterQueue.countUnreplayed}. It limits the cost of counting. */
export const maxCountedDeadLetters = 100_000;
