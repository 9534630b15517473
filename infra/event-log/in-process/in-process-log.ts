/**
 * The event log inside one process.
 *
 * Invariant: a publisher is answered only after every durable consumer group has handled its batch; there is nothing
 * in between that a crash could lose. One batch a partition is under way at a time, so events of a key keep their order.
 *
 *   1. `publish` gives the messages of a request their offsets, hands them to the tails, puts those that are to be stored into
 *      the queues of their partitions and waits. What is not to be stored is done with that: it waits for no store.
 *   2. A partition's loop takes the requests that wait at that moment, up to the consumers' bounds, as one batch; while several
 *      organisations publish, in turn (`take-batch.ts`).
 *   3. Each group handles the batch. Before an insert it writes the cut down in Postgres (step 3a), afterwards it
 *      deletes it in the transaction that notes the touched hours (3b). Died between: `unfinishedCuts` tells at start.
 *   4. All handled: the requests are answered. One failed: all of the batch are refused and their senders send again;
 *      what was stored already merges with the repeat.
 */
import type { Topic } from '../../../schemas/topics.ts';
import { fault, isRunlakeError } from '../../errors/runlake-error.ts';
import { runForRunlake, tenantContext } from '../../fairness/tenant-context.ts';
import type { Database, Sql } from '../../postgres/pool.ts';
import type { Logger } from '../../telemetry/logger.ts';
import type {
  Cut,
  EventLog,
  LogBatch,
  LogMessage,
  LogPosition,
  LogRecord,
  Subscription,
  Tail,
  TailOptions,
  TouchedHour,
} from '../event-log.ts';
import { consumerLag, pendingBytes } from '../event-log-metrics.ts';
import { bytesOf, observePublish } from '../observe-publish.ts';
import { insertDeadLetter } from './dead-letters.ts';
import { Tails } from './tails.ts';
import { takeBatch, type WaitingShare } from './take-batch.ts';
import { toBeStored } from './to-be-stored.ts';

export interface InProcessLogOptions {
  readonly database: Database;
  readonly topics: readonly Topic[];
  readonly partitions: number;
  readonly maxPendingBytes: number;
  readonly logger: Logger;
}

/** How long batches stay small after another organisation published. */
const sharedMs = 10_000;

interface Waiting extends WaitingShare {
  readonly records: readonly LogRecord[];
  readonly done: () => void;
  readonly failed: (reason: unknown) => void;
}

interface Partition {
  readonly topic: Topic;
  readonly number: number;
  readonly queue: Waiting[];
  /** Events that are queued or being handled. */
  waitingEvents: number;
  nextOffset: number;
  /** Those being handled. */
  underWay: readonly Waiting[];
  running: Promise<void> | undefined;
}

/**
 * Opens the log. Offsets go on rising over restarts: they begin at the clock's microseconds, which no process can outpace,
 * and after those that are stored, because the clock may have been set back and an offset that was used would be taken for a repeat.
 *
 * @throws what Postgres throws.
 */
export async function openInProcessLog(options: InProcessLogOptions): Promise<InProcessLog> {
  const [stored] = await options.database.query<{ next: number }>(
    `SELECT coalesce(max(log_offset) + 1, 0) AS next
     FROM (SELECT max(log_offset) AS log_offset FROM parked_events UNION ALL SELECT max(log_offset) FROM dead_letters) AS used`,
  );
  const log = new InProcessLog(options, Math.max(Date.now() * 1_000, stored?.next ?? 0));
  log.showMetrics();
  return log;
}

export class InProcessLog implements EventLog {
  readonly #options: InProcessLogOptions;
  readonly #subscriptions = new Map<string, Subscription[]>();
  readonly #partitions = new Map<string, Partition[]>();
  readonly #tails: Tails;
  #pendingBytes = 0;
  #closed = false;
  #lastTenantId: string | undefined;
  /** Until then several organisations publish. */
  #sharedUntilMs = 0;
  #hideMetrics: (() => void)[] = [];

  /** For {@link openInProcessLog}, which knows the first offset that is free. */
  constructor(options: InProcessLogOptions, firstOffset: number) {
    this.#options = options;
    this.#tails = new Tails(options.logger);
    for (const topic of options.topics) {
      this.#partitions.set(
        topic.name,
        Array.from({ length: options.partitions }, (_, number) => ({
          topic,
          number,
          queue: [],
          waitingEvents: 0,
          nextOffset: firstOffset,
          underWay: [],
          running: undefined,
        })),
      );
    }
  }

  get pendingBytes(): number {
    return this.#pendingBytes;
  }

  /** The gauges of the event log show this log until it is closed. */
  showMetrics(): void {
    this.#hideMetrics = [
      pendingBytes.showing(() => this.#pendingBytes, 0),
      consumerLag.showing(
        () =>
          [...this.#partitions.values()].flat().map(({ topic, number, waitingEvents }) => ({
            labels: { topic: topic.name, partition: number },
            value: waitingEvents,
          })),
        0,
      ),
    ];
  }

  schemaId(topic: Topic): number {
    return this.#options.topics.indexOf(topic) + 1;
  }

  async schemaOf(schemaId: number): Promise<string | undefined> {
    return this.#options.topics[schemaId - 1]?.schema;
  }

  async subscribe(subscription: Subscription): Promise<void> {
    const list = this.#subscriptions.get(subscription.topic.name) ?? [];
    list.push(subscription);
    this.#subscriptions.set(subscription.topic.name, list);
  }

  /** A tail begins now, and is caught up at once: the log keeps nothing. */
  async tail(topic: Topic, { onRecords }: TailOptions): Promise<Tail> {
    if (this.#closed) throw fault('DRAINING', {}, { retryAfterSeconds: 1 });
    const partitions = this.#partitions.get(topic.name) ?? [];
    const stop = this.#tails.add(topic, onRecords);
    return {
      from: Object.fromEntries(partitions.map(({ number, nextOffset }) => [number, nextOffset])),
      passed: () => true,
      close: async () => stop(),
    };
  }

  async publish(topic: Topic, messages: readonly LogMessage[], onPlaced?: () => void): Promise<void> {
    if (messages.length === 0) return onPlaced?.();
    await observePublish(topic, messages, (observed) => this.#publish(topic, observed, onPlaced));
  }

  async #publish(topic: Topic, messages: readonly LogMessage[], onPlaced?: () => void): Promise<void> {
    if (this.#closed) throw fault('DRAINING', {}, { retryAfterSeconds: 1 });
    const bytes = bytesOf(messages);
    if (this.#pendingBytes > 0 && this.#pendingBytes + bytes > this.#options.maxPendingBytes) {
      throw fault('OVERLOADED', { what: 'RUNLAKE_MAX_PENDING_BYTES' }, { retryAfterSeconds: 1 });
    }
    this.#pendingBytes += bytes;
    try {
      const underWay = this.#byPartition(topic, messages).map((share) => this.#place(...share));
      onPlaced?.();
      // All have to end before the bytes are given back, so no early exit on the first failure.
      const ends = await Promise.allSettled(underWay);
      const failed = ends.find((end) => end.status === 'rejected');
      if (failed) throw failed.reason;
    } finally {
      this.#pendingBytes -= bytes;
    }
  }

  #byPartition(topic: Topic, messages: readonly LogMessage[]): [Partition, LogMessage[]][] {
    const partitions = this.#partitions.get(topic.name) ?? [];
    const shares = new Map<Partition, LogMessage[]>();
    for (const message of messages) {
      const partition = partitions[partitions.length === 1 ? 0 : hashOf(message.key) % partitions.length] as Partition;
      const share = shares.get(partition);
      if (share) share.push(message);
      else shares.set(partition, [message]);
    }
    return [...shares];
  }

  /** Step 1. */
  async #place(partition: Partition, messages: readonly LogMessage[]): Promise<void> {
    const placed = messages.map(
      ({ key, value, headers = {} }): LogRecord => ({
        partition: partition.number,
        offset: partition.nextOffset++,
        key,
        value,
        headers,
      }),
    );
    this.#tails.hand(partition.topic, placed);
    const records = toBeStored(partition.topic, placed);
    if (records.length === 0) return;
    const bytes = bytesOf(records);
    const tenantId = tenantContext()?.organizationId;
    if (tenantId !== this.#lastTenantId) {
      if (this.#lastTenantId !== undefined) this.#sharedUntilMs = performance.now() + sharedMs;
      this.#lastTenantId = tenantId;
    }
    await new Promise<void>((done, failed) => {
      partition.waitingEvents += records.length;
      partition.queue.push({ tenantId, records, rows: records.length, bytes, done, failed });
      // The loop works for all organisations, not for the one whose request started it.
      partition.running ??= runForRunlake(() => this.#run(partition));
    });
  }

  async #run(partition: Partition): Promise<void> {
    // Requests that arrive in the same turn of the event loop join the first batch.
    await new Promise((resolve) => setImmediate(resolve));
    while (partition.queue.length > 0) {
      const waiting = this.#take(partition);
      partition.underWay = waiting;
      try {
        await this.#handle(partition, waiting);
        for (const request of waiting) request.done();
      } catch (error) {
        const refusal = this.#refusal(partition, error);
        for (const request of waiting) request.failed(refusal);
      }
      for (const request of waiting) partition.waitingEvents -= request.records.length;
      partition.underWay = [];
    }
    partition.running = undefined;
  }

  #take(partition: Partition): Waiting[] {
    const subscriptions = this.#subscriptions.get(partition.topic.name) ?? [];
    const rows = Math.min(...subscriptions.map((subscription) => subscription.limits.rows));
    const bytes = Math.min(...subscriptions.map((subscription) => subscription.limits.bytes));
    return takeBatch(partition.queue, { rows, bytes }, performance.now() < this.#sharedUntilMs);
  }

  async #handle(partition: Partition, waiting: readonly Waiting[]): Promise<void> {
    const batch: LogBatch = {
      topic: partition.topic,
      partition: partition.number,
      records: waiting.flatMap((request) => request.records),
      writeDownCut: (cut) => this.#writeDownCut(partition, cut),
    };
    for (const subscription of this.#subscriptions.get(partition.topic.name) ?? []) await subscription.handle(batch);
  }

  #refusal(partition: Partition, error: unknown): unknown {
    this.#options.logger.error({ err: error, topic: partition.topic.name }, 'a batch could not be stored');
    const retryAfterSeconds = (isRunlakeError(error) && error.retryAfterSeconds) || 1;
    return fault('EVENT_LOG_UNAVAILABLE', {}, { cause: error, retryAfterSeconds });
  }

  async #writeDownCut(partition: Partition, cut: Cut): Promise<void> {
    await this.#options.database.query(
      `INSERT INTO pending_cuts (topic, partition, token, cut) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`,
      [partition.topic.name, partition.number, cut.token, { hours: cut.hours }],
    );
  }

  async unfinishedCuts(): Promise<Cut[]> {
    const rows = await this.#options.database.query<{ token: string; cut: { hours: TouchedHour[] } }>(
      'SELECT token, cut FROM pending_cuts ORDER BY written_at',
    );
    return rows.map(({ token, cut }) => ({ token, hours: cut.hours }));
  }

  async finishCut(cut: Cut, transaction: Sql): Promise<void> {
    await transaction.query('DELETE FROM pending_cuts WHERE token = $1', [cut.token]);
  }

  async deadLetter(topic: Topic, record: LogRecord, reason: string, step: string, transaction?: Sql): Promise<void> {
    await insertDeadLetter(transaction ?? this.#options.database, { topic: topic.name, record, reason, step });
  }

  /** Nothing: what is published is stored before its publisher is answered. */
  async position(): Promise<LogPosition> {
    return {};
  }

  /** Offsets come from {@link InProcessLog.tail}; what an earlier process published was stored by it. */
  async stored(topic: Topic, position: LogPosition): Promise<boolean> {
    return (this.#partitions.get(topic.name) ?? []).every(({ number, underWay, queue }) => {
      const before = position[number] ?? 0;
      return [...underWay, ...queue].every(({ records: [oldest] }) => oldest === undefined || oldest.offset >= before);
    });
  }

  async check(): Promise<void> {
    if (this.#closed) throw fault('DRAINING', {}, { retryAfterSeconds: 1 });
    await this.#options.database.ping();
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const partitions of this.#partitions.values()) {
      for (const partition of partitions) await partition.running;
    }
    this.#tails.clear();
    for (const hide of this.#hideMetrics) hide();
  }
}

/** FNV-1a: spreads keys evenly; it guards nothing. */
function hashOf(key: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < key.length; index++) hash = Math.imul(hash ^ key.charCodeAt(index), 0x01000193);
  return hash >>> 0;
}
