/**
 * The event log within one process.
 *
 * Invariant: `publish` resolves only after all consumer groups have stored the batch, so that a crash loses no
 * acknowledged event. Each organisation has at most one batch in flight per partition, so that events of a key stay in
 * order.
 *
 *   1. `publish` assigns offsets, which Postgres has reserved for this process, to the messages of a request and passes
 *      them to the followers. It adds the messages that are to be stored to the queues of their partitions, and waits.
 *      Messages that are not to be stored need no further step.
 *   2. The log takes the waiting requests, up to the limits of the consumers, as one batch. While several
 *      organisations publish, it takes their requests in turn (`take-batch.ts`). A second batch, of other
 *      organisations, may be in flight at the same time, so that a small request does not wait for a large batch of
 *      another organisation. While several organisations publish, the organisations of a large batch pause for as
 *      long as the batch took, which leaves half of the time to the other organisations. After a batch of several
 *      requests, the partition waits a moment for the next requests of the same senders, because an insert of half as
 *      many rows takes nearly as long.
 *   3. Each group handles the batch. The sink records each insert in Postgres before the insert begins (3a), and
 *      deletes the record in the transaction that marks the hours dirty (3b). After a crash between the two, the next
 *      start finds the record and marks the hours, because the publishers may have given up.
 *   4. When all groups have handled the batch, `publish` resolves for its requests. If a group fails, `publish`
 *      rejects for all requests of the batch, and their senders retry. Rows that are already stored are merged with
 *      the repeated rows.
 */
import { setTimeout as pause } from 'node:timers/promises';
import type { Topic } from '../../../schemas/topics.ts';
import { isRunlakeError, runlakeError } from '../../errors/runlake-error.ts';
import { getTenantContext, runWithoutTenant } from '../../fairness/tenant-context.ts';
import type { Database, Sql } from '../../postgres/pool.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { getFieldOffset } from '../avro.ts';
import {
  computeRecordVersion,
  createDrainingError,
  createOverloadedError,
  type EventLog,
  type FollowOptions,
  type InFlightInsert,
  type InFlightInserts,
  type LogBatch,
  type LogMessage,
  type LogPosition,
  type LogRecord,
  type Subscription,
  type TopicFollower,
} from '../event-log.ts';
import { consumerLag, observePublish, pendingBytes, sumValueBytes } from '../event-log-metrics.ts';
import { insertDeadLetter } from './dead-letter-queue.ts';
import { OffsetReservation } from './offset-reservation.ts';
import { dequeueBatch, type GatheringPartition, gather, hasDominantTenant, type WaitingShare } from './take-batch.ts';

export interface InProcessLogOptions {
  readonly database: Database;
  readonly topics: readonly Topic[];
  readonly partitions: number;
  readonly maxPendingBytes: number;
  readonly logger: Logger;
}

/** Maximum number of batches in flight per partition. */
const maxBatchesInFlight = 2;

/** Time for which batches stay small after a second organisation has published. */
const sharedModeMs = 10_000;

interface WaitingRequest extends WaitingShare {
  readonly records: readonly LogRecord[];
  readonly done: () => void;
  readonly failed: (reason: unknown) => void;
}

interface Partition extends GatheringPartition {
  readonly topic: Topic;
  readonly number: number;
  readonly queue: WaitingRequest[];
  /** Number of events that are queued or being handled. */
  waitingEvents: number;
  nextOffset: number;
  /**
   * Batches that are being handled, or whose organisations are pausing. An organisation is part of at most one of these
   * batches.
   */
  readonly inFlight: Map<readonly WaitingRequest[], Promise<void>>;
  isStarting: boolean;
}

/** A topic and the state of its processing in this process. */
interface TopicState {
  readonly partitions: readonly Partition[];
  readonly subscriptions: Subscription[];
  readonly followers: Set<FollowOptions['onRecords']>;
}

/** Opens the log. Offsets increase across restarts. @throws the errors of the database. */
export async function openInProcessLog(options: InProcessLogOptions): Promise<InProcessLog> {
  const { reservation, firstOffset } = await OffsetReservation.open(options.database);
  return new InProcessLog(options, reservation, firstOffset);
}

export class InProcessLog implements EventLog {
  readonly inFlightInserts: InFlightInserts;
  readonly #options: InProcessLogOptions;
  readonly #topics = new Map<string, TopicState>();
  readonly #hideMetrics: readonly (() => void)[];
  readonly #reservation: OffsetReservation;
  #pendingBytes = 0;
  #closed = false;
  #lastTenantId: string | undefined;
  /** Time until which batches are shared between organisations. */
  #sharedUntilMs = 0;

  /** Creates the log. Callers use {@link openInProcessLog}, which finds the first free offset. */
  constructor(options: InProcessLogOptions, reservation: OffsetReservation, firstOffset: number) {
    this.#options = options;
    this.#reservation = reservation;
    this.inFlightInserts = createInFlightInserts(options.database);
    for (const topic of options.topics) {
      const partitions = Array.from({ length: options.partitions }, (_, number) => ({
        topic,
        number,
        queue: [],
        waitingEvents: 0,
        nextOffset: firstOffset,
        inFlight: new Map(),
        isStarting: false,
      }));
      this.#topics.set(topic.name, { partitions, subscriptions: [], followers: new Set() });
    }
    this.#hideMetrics = [
      pendingBytes.setReader(() => this.#pendingBytes, 0),
      consumerLag.setReader(() => this.#lag(), 0),
    ];
  }

  get pendingBytes(): number {
    return this.#pendingBytes;
  }

  schemaId(topic: Topic): number {
    return this.#options.topics.indexOf(topic) + 1;
  }

  async getSchema(schemaId: number): Promise<string | undefined> {
    return this.#options.topics[schemaId - 1]?.schema;
  }

  async subscribe(subscription: Subscription): Promise<void> {
    this.#getState(subscription.topic).subscriptions.push(subscription);
  }

  /**
   * Follows a topic from the next event on. There are no earlier events to deliver, because the log stores no events.
   */
  async follow(topic: Topic, { onRecords }: FollowOptions): Promise<TopicFollower> {
    if (this.#closed) throw createDrainingError();
    const { partitions, followers } = this.#getState(topic);
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
    await observePublish(topic, messages, (observedMessages) =>
      this.#publish(topic, observedMessages, onOffsetsAssigned),
    );
  }

  async #publish(topic: Topic, messages: readonly LogMessage[], onOffsetsAssigned?: () => void): Promise<void> {
    if (this.#closed) throw createDrainingError();
    const bytes = sumValueBytes(messages);
    if (this.#pendingBytes > 0 && this.#pendingBytes + bytes > this.#options.maxPendingBytes) {
      throw createOverloadedError();
    }
    this.#pendingBytes += bytes;
    try {
      while (!this.#hasOffsets(topic, messages.length)) await this.#reservation.extend();
      const inFlight = this.#byPartition(topic, messages).map((share) => this.#enqueue(...share));
      onOffsetsAssigned?.();
      // Waits for all of them, even after a failure, before the bytes are released.
      const outcomes = await Promise.allSettled(inFlight);
      const failed = outcomes.find((outcome) => outcome.status === 'rejected');
      if (failed) throw failed.reason;
    } finally {
      this.#pendingBytes -= bytes;
    }
  }

  #hasOffsets(topic: Topic, count: number): boolean {
    return this.#getState(topic).partitions.every(({ nextOffset }) => this.#reservation.covers(nextOffset + count));
  }

  #byPartition(topic: Topic, messages: readonly LogMessage[]): [Partition, LogMessage[]][] {
    const { partitions } = this.#getState(topic);
    const shares = new Map<Partition, LogMessage[]>();
    for (const message of messages) {
      const partition = partitions[partitions.length === 1 ? 0 : hashKey(message.key) % partitions.length] as Partition;
      const share = shares.get(partition);
      if (share) share.push(message);
      else shares.set(partition, [message]);
    }
    return [...shares];
  }

  /** Executes step 1. */
  async #enqueue(partition: Partition, messages: readonly LogMessage[]): Promise<void> {
    const appendedRecords = messages.map(({ key, value, headers = {} }): LogRecord => {
      const offset = partition.nextOffset++;
      const version = computeRecordVersion(Math.floor(offset / 1_000), offset % 1_000, headers);
      return { partition: partition.number, offset, key, value, headers, version };
    });
    this.#passToFollowers(partition.topic, appendedRecords);
    const records = selectStoredRecords(partition.topic, appendedRecords);
    if (records.length === 0) return;
    const bytes = sumValueBytes(records);
    const tenantId = getTenantContext()?.organizationId;
    if (tenantId !== this.#lastTenantId) {
      if (this.#lastTenantId !== undefined) this.#sharedUntilMs = performance.now() + sharedModeMs;
      this.#lastTenantId = tenantId;
    }
    await new Promise<void>((done, failed) => {
      partition.waitingEvents += records.length;
      partition.queue.push({ tenantId, records, rows: records.length, bytes, done, failed });
      if (partition.queue.length === partition.pendingGather?.requests) partition.pendingGather.done();
      this.#startSoon(partition);
    });
  }

  #passToFollowers(topic: Topic, records: readonly LogRecord[]): void {
    for (const follower of this.#getState(topic).followers) {
      try {
        follower(records);
      } catch (error) {
        this.#options.logger.error({ err: error, topic: topic.name }, 'a follower of the event log failed on records');
      }
    }
  }

  /**
   * Starts batches soon, so that requests that arrive in the same turn of the event loop are part of the same batch.
   */
  #startSoon(partition: Partition): void {
    if (partition.isStarting) return;
    partition.isStarting = true;
    setImmediate(() => {
      partition.isStarting = false;
      // The batch may contain requests of several organisations, so it runs outside the tenant context of the caller.
      runWithoutTenant(() => this.#startBatches(partition));
    });
  }

  /** Executes step 2. */
  #startBatches(partition: Partition): void {
    while (partition.inFlight.size < maxBatchesInFlight) {
      const waiting = this.#take(partition);
      if (waiting.length === 0) return;
      partition.inFlight.set(waiting, this.#run(partition, waiting));
    }
  }

  /** Executes steps 3 and 4. */
  async #run(partition: Partition, waiting: readonly WaitingRequest[]): Promise<void> {
    const startedAtMs = performance.now();
    try {
      await this.#handle(partition, waiting);
      for (const request of waiting) request.done();
    } catch (error) {
      const refusal = this.#refusal(partition, error);
      for (const request of waiting) request.failed(refusal);
    }
    for (const request of waiting) partition.waitingEvents -= request.records.length;
    const durationMs = performance.now() - startedAtMs;
    if (this.#isShared) {
      if (hasDominantTenant(waiting)) await pause(durationMs);
    } else await gather(partition, waiting.length + partition.queue.length, durationMs);
    partition.inFlight.delete(waiting);
    this.#startBatches(partition);
  }

  #take(partition: Partition): WaitingRequest[] {
    const { subscriptions } = this.#getState(partition.topic);
    const rows = Math.min(...subscriptions.map((subscription) => subscription.limits.rows));
    const bytes = Math.min(...subscriptions.map((subscription) => subscription.limits.bytes));
    const sharing = { isShared: this.#isShared, excludedTenantIds: collectTenantIds(partition.inFlight.keys()) };
    return dequeueBatch(partition.queue, { rows, bytes }, sharing);
  }

  get #isShared(): boolean {
    return performance.now() < this.#sharedUntilMs && !this.#closed;
  }

  async #handle(partition: Partition, waiting: readonly WaitingRequest[]): Promise<void> {
    const batch: LogBatch = {
      topic: partition.topic,
      partition: partition.number,
      records: waiting.flatMap((request) => request.records),
    };
    for (const subscription of this.#getState(partition.topic).subscriptions) await subscription.handle(batch);
  }

  #refusal(partition: Partition, error: unknown): unknown {
    this.#options.logger.error({ err: error, topic: partition.topic.name }, 'a batch could not be stored');
    const retryAfterSeconds = (isRunlakeError(error) && error.retryAfterSeconds) || 1;
    return runlakeError('EVENT_LOG_UNAVAILABLE', {}, { cause: error, retryAfterSeconds });
  }

  async deadLetter(topic: Topic, record: LogRecord, reason: string, step: string, transaction?: Sql): Promise<void> {
    await insertDeadLetter(transaction ?? this.#options.database, topic.name, record, reason, step);
  }

  /** Returns an empty position, because `publish` resolves only after the events are stored. */
  async position(): Promise<LogPosition> {
    return {};
  }

  /**
   * Returns true if all events before `position` are stored. Only events of this process can be missing, because
   * earlier processes stored all events that they acknowledged.
   */
  async isStored(topic: Topic, position: LogPosition): Promise<boolean> {
    return this.#getState(topic).partitions.every(({ number, inFlight, queue }) => {
      const before = position[number] ?? 0;
      return [...[...inFlight.keys()].flat(), ...queue].every(
        ({ records: [oldest] }) => oldest === undefined || oldest.offset >= before,
      );
    });
  }

  async check(): Promise<void> {
    if (this.#closed) throw createDrainingError();
    await this.#options.database.ping();
  }

  async close(): Promise<void> {
    this.#closed = true;
    const states = [...this.#topics.values()];
    for (const { queue, inFlight } of states.flatMap(({ partitions }) => partitions)) {
      while (queue.length > 0 || inFlight.size > 0) {
        await Promise.all(inFlight.values());
        await new Promise((resolve) => setImmediate(resolve));
      }
    }
    for (const { followers } of states) followers.clear();
    for (const hide of this.#hideMetrics) hide();
  }

  #getState({ name }: Topic): TopicState {
    return this.#topics.get(name) ?? { partitions: [], subscriptions: [], followers: new Set() };
  }

  #lag() {
    return [...this.#topics.values()].flatMap(({ partitions }) =>
      partitions.map(({ topic, number, waitingEvents }) => ({
        labels: { topic: topic.name, partition: number },
        value: waitingEvents,
      })),
    );
  }
}

function collectTenantIds(batches: Iterable<readonly WaitingShare[]>): Set<string | undefined> {
  const tenants = new Set<string | undefined>();
  for (const batch of batches) for (const { tenantId } of batch) tenants.add(tenantId);
  return tenants;
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

/** Creates the store for in-flight inserts, which uses the table `in_flight_inserts`. */
function createInFlightInserts(database: Database): InFlightInserts {
  return {
    async begin({ id, hours }) {
      await database.query('INSERT INTO in_flight_inserts (id, hours) VALUES ($1, $2)', [id, JSON.stringify(hours)]);
    },
    async complete(id, transaction) {
      await transaction.query('DELETE FROM in_flight_inserts WHERE id = $1', [id]);
    },
    list: () => database.query<InFlightInsert>('SELECT id, hours FROM in_flight_inserts ORDER BY written_at'),
  };
}
