/**
 * The event log within one process. Its events are in memory and, until its consumers have stored them, in the table
 * `event_log` of ClickHouse.
 *
 * Invariant: `publish` resolves only after the table has the events, and the log deletes events from the table only after
 * all consumer groups have stored them. So no crash loses an acknowledged event.
 *
 *   1. `publish` assigns offsets, which Postgres has reserved for this process, to the messages of a request and passes
 *      them to the followers. It adds the messages that are to be stored to the queue, and waits. Messages that are not
 *      to be stored need no further step.
 *   2. The log takes the waiting requests, of all organisations in turn (`take-batch.ts`), and appends their events to
 *      the table in one insert. There is one insert at a time, so that events of a key stay in order. If many events of
 *      an organisation are not stored yet, its requests wait, so that the events of others are stored soon.
 *   3. `publish` resolves. If the insert failed, `publish` rejects, also for the requests that wait, and the senders retry.
 *   4. Each partition delivers its events to the groups (`partition-delivery.ts`), in the order of step 2.
 *   5. When all groups have stored an event, the table may drop it (`log-table.ts`).
 *
 * The next process reads the remaining events from the table and continues at step 4. It may deliver events that are
 * already stored; storing them again changes nothing.
 */
import type { Topic } from '../../../schemas/topics.ts';
import type { ClickHouse } from '../../clickhouse/clickhouse.ts';
import { isRunlakeError, runlakeError } from '../../errors/runlake-error.ts';
import { getTenantContext, runWithoutTenant } from '../../fairness/tenant-context.ts';
import type { Database, Sql } from '../../postgres/pool.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { getFieldOffset } from '../avro.ts';
import {
  computeRecordVersion,
  createDrainingError,
  createOverloadedError,
  type DeadLetterStep,
  type EventLog,
  type FollowOptions,
  type LogMessage,
  type LogPosition,
  type LogRecord,
  type Subscription,
  type TopicFollower,
} from '../event-log.ts';
import { consumerLag, observePublish, pendingBytes, sumValueBytes } from '../event-log-metrics.ts';
import { insertDeadLetter } from './dead-letter-queue.ts';
import { type LoggedRecords, LogTable, type Segment } from './log-table.ts';
import { OffsetReservation } from './offset-reservation.ts';
import { PartitionDelivery } from './partition-delivery.ts';
import { dequeueBatch, type WaitingRequest } from './take-batch.ts';
import { PendingBytes, UnstoredEventsByTenant } from './unstored-events.ts';

export interface InProcessLogOptions {
  readonly clickhouse: ClickHouse;
  readonly database: Database;
  readonly topics: readonly Topic[];
  readonly partitions: number;
  readonly maxPendingBytes: number;
  readonly logger: Logger;
}

/** Maximum size of the events that are appended in one insert, so that small requests wait only briefly. */
const maxAppendBytes = 4 * 1024 ** 2;

/** The events of a request in one partition. */
interface Share extends LoggedRecords {
  readonly partition: Partition;
  readonly records: readonly LogRecord[];
  readonly bytes: number;
}

interface Request extends WaitingRequest {
  readonly shares: readonly Share[];
  readonly appended: () => void;
  readonly failed: (reason: unknown) => void;
}

interface Partition {
  readonly topic: Topic;
  readonly number: number;
  readonly delivery: PartitionDelivery;
  nextOffset: number;
  /** Events that are not stored, including those that are not appended yet. */
  readonly unstored: Set<Share>;
}

interface TopicState {
  readonly partitions: readonly Partition[];
  readonly followers: Set<FollowOptions['onRecords']>;
}

/** Opens the log with the events that an earlier process has not stored. @throws the errors of the stores. */
export async function openInProcessLog(options: InProcessLogOptions): Promise<InProcessLog> {
  const { reservation, firstOffset } = await OffsetReservation.open(options.database);
  const log = new InProcessLog(options, reservation, firstOffset);
  await log.resume().catch((error) => log.close().then(() => Promise.reject(error)));
  return log;
}

export class InProcessLog implements EventLog {
  readonly isExclusive = true;
  readonly #options: InProcessLogOptions;
  readonly #table: LogTable;
  readonly #topics = new Map<string, TopicState>();
  readonly #hideMetrics: readonly (() => void)[];
  readonly #reservation: OffsetReservation;
  /** Requests that are not appended yet. */
  readonly #queue: Request[] = [];
  #appending: Promise<void> | undefined;
  /** Events that are appended and not stored. */
  readonly #appended: UnstoredEventsByTenant;
  readonly #pending: PendingBytes;
  #closing: Promise<void> | undefined;

  /** Callers use {@link openInProcessLog}. */
  constructor(options: InProcessLogOptions, reservation: OffsetReservation, firstOffset: number) {
    const { clickhouse, topics, logger } = options;
    this.#options = options;
    this.#reservation = reservation;
    this.#pending = new PendingBytes(options.maxPendingBytes);
    this.#appended = new UnstoredEventsByTenant(options.maxPendingBytes);
    this.#table = new LogTable(clickhouse, firstOffset, logger);
    for (const topic of topics) {
      const partitions = Array.from({ length: options.partitions }, (_, number) => ({
        topic,
        number,
        delivery: new PartitionDelivery({ partition: number, logger, onProgress: () => this.#onProgress() }),
        nextOffset: firstOffset,
        unstored: new Set<Share>(),
      }));
      this.#topics.set(topic.name, { partitions, followers: new Set() });
    }
    this.#hideMetrics = [
      pendingBytes.setReader(() => this.#pending.total, 0),
      consumerLag.setReader(() => this.#lag(), 0),
    ];
  }

  /** Queues the events for delivery that earlier processes have not stored. @throws the errors of ClickHouse. */
  async resume(): Promise<void> {
    for await (const { segment, topic, tenantId, record } of this.#table.readRemaining()) {
      const { partitions } = this.#getState(topic);
      const partition = partitions[record.partition % partitions.length];
      if (partition === undefined) continue;
      const records = [{ ...record, version: computeOffsetVersion(record.offset, record.headers) }];
      const share = { topic, tenantId, partition, records, bytes: record.value.length };
      this.#track(share);
      this.#deliver(share, segment);
    }
  }

  schemaId(topic: Topic): number {
    return this.#options.topics.indexOf(topic) + 1;
  }

  async getSchema(schemaId: number): Promise<string | undefined> {
    return this.#options.topics[schemaId - 1]?.schema;
  }

  async subscribe(subscription: Subscription): Promise<void> {
    for (const { delivery } of this.#getState(subscription.topic.name).partitions) delivery.subscribe(subscription);
  }

  /** Follows a topic from the next event on. Earlier events cannot be delivered, because the log does not keep them. */
  async follow(topic: Topic, { onRecords }: FollowOptions): Promise<TopicFollower> {
    if (this.#closing) throw createDrainingError();
    const { partitions, followers } = this.#getState(topic.name);
    // The function is wrapped, so that the same function can follow a topic twice.
    const follower: FollowOptions['onRecords'] = (records) => onRecords(records);
    followers.add(follower);
    return {
      from: Object.fromEntries(partitions.map(({ number, nextOffset }) => [number, nextOffset])),
      hasDelivered: () => true,
      close: async () => void followers.delete(follower),
    };
  }

  async publish(topic: Topic, messages: readonly LogMessage[], onOffsetsAssigned?: () => void): Promise<void> {
    if (messages.length === 0) return onOffsetsAssigned?.();
    await observePublish(topic, messages, (observed) => this.#publish(topic, observed, onOffsetsAssigned));
  }

  async #publish(topic: Topic, messages: readonly LogMessage[], onOffsetsAssigned?: () => void): Promise<void> {
    while (!this.#closing && !this.#hasOffsets(topic, messages.length)) await this.#reservation.extend();
    if (this.#closing) throw createDrainingError();
    const tenantId = getTenantContext()?.organizationId;
    if (!this.#pending.isWithinLimit(tenantId, sumValueBytes(messages))) throw createOverloadedError();
    const shares = this.#assignOffsets(tenantId, topic, messages);
    const appended = shares.length === 0 ? undefined : this.#enqueue(tenantId, shares);
    onOffsetsAssigned?.();
    await appended;
    this.#appended.notePublished();
  }

  #hasOffsets(topic: Topic, count: number): boolean {
    const { partitions } = this.#getState(topic.name);
    return partitions.every(({ nextOffset }) => this.#reservation.covers(nextOffset + count));
  }

  /** Executes step 1. @returns the events that are to be stored. */
  #assignOffsets(tenantId: string | undefined, topic: Topic, messages: readonly LogMessage[]): Share[] {
    const { partitions, followers } = this.#getState(topic.name);
    const recordsByPartition = new Map<Partition, LogRecord[]>();
    for (const { key, value, headers = {} } of messages) {
      const partition = partitions[partitions.length === 1 ? 0 : hashKey(key) % partitions.length] as Partition;
      const offset = partition.nextOffset++;
      const version = computeOffsetVersion(offset, headers);
      const record = { partition: partition.number, offset, key, value, headers, version };
      const records = recordsByPartition.get(partition);
      if (records) records.push(record);
      else recordsByPartition.set(partition, [record]);
    }
    const shares: Share[] = [];
    for (const [partition, records] of recordsByPartition) {
      this.#passToFollowers(topic, followers, records);
      const stored = selectStoredRecords(topic, records);
      if (stored.length > 0)
        shares.push({ topic: topic.name, tenantId, partition, records: stored, bytes: sumValueBytes(stored) });
    }
    return shares;
  }

  #passToFollowers(topic: Topic, followers: TopicState['followers'], records: readonly LogRecord[]): void {
    for (const follower of followers) {
      try {
        follower(records);
      } catch (error) {
        this.#options.logger.error({ err: error, topic: topic.name }, 'a follower of the event log failed on records');
      }
    }
  }

  #enqueue(tenantId: string | undefined, shares: readonly Share[]): Promise<void> {
    for (const share of shares) this.#track(share);
    const bytes = shares.reduce((sum, share) => sum + share.bytes, 0);
    return new Promise((appended, failed) => {
      this.#queue.push({ tenantId, bytes, shares, appended, failed });
      this.#startAppending();
    });
  }

  #startAppending(): void {
    // An insert may contain requests of several organisations, so it runs outside the context of the caller.
    this.#appending ??= runWithoutTenant(() => this.#appendAll());
  }

  /** Executes steps 2 and 3 until no request can be appended. */
  async #appendAll(): Promise<void> {
    for (;;) {
      // Requests that arrive in the same turn of the event loop are part of the same insert.
      await new Promise((resolve) => setImmediate(resolve));
      const requests = dequeueBatch(this.#queue, maxAppendBytes, (tenantId) => this.#mustWait(tenantId));
      if (requests.length === 0) break;
      await this.#append(requests);
    }
    this.#appending = undefined;
    // The requests that are left wait for the groups, so gathering events would only delay them.
    if (this.#queue.length > 0) for (const { delivery } of this.#partitions()) delivery.hurry();
  }

  async #append(requests: readonly Request[]): Promise<void> {
    try {
      const segments = await this.#table.append(requests.flatMap(({ shares }) => shares));
      for (const { shares, appended } of requests) {
        for (const share of shares) this.#deliver(share, segments.get(share.topic) as Segment);
        appended();
      }
    } catch (error) {
      this.#options.logger.error({ err: error }, 'events could not be appended to the log');
      // The requests that wait would probably fail, too, and each would wait for all before it.
      this.#refuse([...requests, ...this.#queue.splice(0)], error);
    }
  }

  /** Returns true if so many events of the organisation wait for the groups that its requests must not be appended yet. */
  #mustWait(tenantId: string | undefined): boolean {
    return this.#appended.isFull(tenantId) && !this.#closing;
  }

  /** Executes step 4 for the events of a request. */
  #deliver(share: Share, segment: Segment): void {
    const { tenantId, partition, records, bytes } = share;
    const { delivery } = partition;
    const remove = this.#appended.add(tenantId, bytes, delivery);
    const onStored = () => {
      this.#table.release(segment, records.length);
      this.#untrack(share);
      remove();
    };
    delivery.add({ records, bytes, onStored });
  }

  #track(share: Share): void {
    share.partition.unstored.add(share);
    this.#pending.add(share.tenantId, share.bytes);
  }

  #untrack(share: Share): void {
    share.partition.unstored.delete(share);
    this.#pending.add(share.tenantId, -share.bytes);
  }

  /** Rejects requests. Their events may be in the table: they are dropped, or the next process delivers them. */
  #refuse(requests: readonly Request[], cause: unknown): void {
    const retryAfterSeconds = (isRunlakeError(cause) && cause.retryAfterSeconds) || 1;
    const refusal = runlakeError('EVENT_LOG_UNAVAILABLE', {}, { cause, retryAfterSeconds });
    for (const { shares, failed } of requests) {
      for (const share of shares) this.#untrack(share);
      failed(refusal);
    }
  }

  /** While batches are rejected, no request waits for them. */
  #onProgress(): void {
    this.#appended.checkReads();
    if (this.#partitions().some(({ delivery }) => delivery.isRejected)) {
      const waiting = dequeueBatch(this.#queue, Number.POSITIVE_INFINITY, (tenantId) => !this.#mustWait(tenantId));
      this.#refuse(waiting, undefined);
    }
    if (this.#queue.length > 0) this.#startAppending();
  }

  async whenStored(): Promise<void> {
    await this.#appended.waitUntilStored();
  }

  async deadLetter(topic: Topic, record: LogRecord, reason: string, step: DeadLetterStep, tx?: Sql): Promise<void> {
    await insertDeadLetter(tx ?? this.#options.database, topic.name, record, reason, step);
  }

  async position(topic: Topic): Promise<LogPosition> {
    const { partitions } = this.#getState(topic.name);
    return Object.fromEntries(partitions.map(({ number, nextOffset }) => [number, nextOffset]));
  }

  async isStored(topic: Topic, position: LogPosition): Promise<boolean> {
    const late = this.#getState(topic.name).partitions.filter(({ number, unstored }) => {
      const end = position[number] ?? 0;
      return [...unstored].some(({ records: [oldest] }) => oldest !== undefined && oldest.offset < end);
    });
    // Callers ask again until the events are stored.
    for (const { delivery } of late) delivery.hurry();
    return late.length === 0;
  }

  async check(): Promise<void> {
    if (this.#closing) throw createDrainingError();
    await this.#options.database.ping();
  }

  /** Also deletes the delivered events from the table. Events that a group rejects remain there for the next process. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    while (this.#queue.length > 0) {
      this.#startAppending();
      await this.#appending;
    }
    await this.#appending;
    await Promise.all(this.#partitions().map(({ delivery }) => delivery.close()));
    await this.#table.close();
    for (const { followers } of this.#topics.values()) followers.clear();
    for (const hide of this.#hideMetrics) hide();
  }

  #getState(topic: string): TopicState {
    return this.#topics.get(topic) ?? { partitions: [], followers: new Set() };
  }

  #partitions(): Partition[] {
    return [...this.#topics.values()].flatMap(({ partitions }) => partitions);
  }

  #lag() {
    return this.#partitions().map(({ topic, number, unstored }) => {
      const value = [...unstored].reduce((events, { records }) => events + records.length, 0);
      return { labels: { topic: topic.name, partition: number }, value };
    });
  }
}

/** Computes the version of a record from its offset, which begins at the time in microseconds. */
function computeOffsetVersion(offset: number, headers: LogRecord['headers']): bigint {
  return computeRecordVersion(Math.floor(offset / 1_000), offset % 1_000, headers);
}

/** Computes the FNV-1a hash, which distributes keys over partitions. It is not a cryptographic hash. */
function hashKey(key: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < key.length; index++) hash = Math.imul(hash ^ key.charCodeAt(index), 0x01000193);
  return hash >>> 0;
}

/** Removes the records whose `storedFlag` flag is false, if the topic has such a flag. */
function selectStoredRecords(topic: Topic, records: readonly LogRecord[]): readonly LogRecord[] {
  if (topic.storedFlag === undefined) return records;
  const at = getFieldOffset(topic, topic.storedFlag);
  // Records that are too short to contain the flag are kept: the sink sends them to the dead-letter queue.
  return records.filter(({ value }) => value[at] !== 0);
}
