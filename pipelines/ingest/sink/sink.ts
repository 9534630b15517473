/**
 * The sink: stores batches of the event log in ClickHouse.
 *
 * Invariant: the sink handles one batch per partition at a time, in log order, because the order decides values. It
 * acknowledges a batch only after every record of it is stored, deferred or in the dead-letter queue.
 *
 *   1. Inspect each record without decoding it and set aside those that can never be stored. Drop records that are not
 *      to be stored; write partition and offset into the others if their table stores them (`prepare-records.ts`).
 *   2. Assign run events the project and time of their trace. Defer events of unknown traces in Postgres.
 *   3. Insert the deferred events of traces that this batch has events of, before the batch's own events, because they
 *      are older. Drop events of either kind that repeat stored ones (`recent-events.ts`).
 *   4. Split the batch into insert batches and insert them one after the other (`insert-batch.ts`).
 *   5. Cache the locations of new traces and wake the usage roll-up.
 *   6. Send the records set aside in step 1 to the dead-letter queue. This comes last, so that a batch that is
 *      redelivered while ClickHouse is down does not write a dead-letter record each time.
 *
 * After a failure the log redelivers the whole batch, or its publishers retry; rows that are already stored merge with
 * the repeats.
 */
import type { ClickHouse } from '../../../infra/clickhouse/clickhouse.ts';
import type { Config } from '../../../infra/config/settings.ts';
import { isRunlakeError, type RunlakeError } from '../../../infra/errors/runlake-error.ts';
import { schemaIdOf } from '../../../infra/event-log/avro.ts';
import {
  type EventLog,
  type InsertBatch,
  type LogBatch,
  type LogRecord,
  storingGroup,
} from '../../../infra/event-log/event-log.ts';
import type { Database, Sql } from '../../../infra/postgres/pool.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import { traceInsert } from '../../../infra/telemetry/tracing/spans.ts';
import type { Topic } from '../../../schemas/topics.ts';
import { tenantIdOf, traceIdOf, traceKeyOf } from '../run-event/run-event.ts';
import { assignTraceLocations, moveTo, type TraceLocation, TraceLocationCache } from './assign-trace-locations.ts';
import { claimDeferredEvents, countDeferred, DeferredTopics, deferEvents, releaseEvents } from './deferred-events.ts';
import { insertBatch, recoverInserts } from './insert-batch.ts';
import {
  acceptedTimes,
  inspectRecord,
  type Poison,
  prepareRecords,
  type RecordSchema,
  RecordSchemas,
} from './prepare-records.ts';
import { RecentEvents } from './recent-events.ts';
import {
  ageOfNewestVisible,
  deadLetters,
  deferredEvents,
  deferredNow,
  movedEvents,
  newestVisibleAge,
  repeatedEvents,
} from './sink-metrics.ts';
import { splitIntoInsertBatches, type ValidRecord } from './split-into-batches.ts';

/** Trace locations in memory, about 100 MB; ClickHouse has the others. */
const cachedTraceLocations = 1_000_000;

export interface SinkOptions {
  readonly log: EventLog;
  readonly clickhouse: ClickHouse;
  readonly database: Database;
  readonly config: Pick<Config, 'insertBatchRows' | 'insertBatchBytes' | 'maxRunAgeDays'>;
  readonly logger: Logger;
  /** Called after hours were marked dirty. */
  readonly onHoursMarked: () => void;
}

export class Sink {
  readonly #options: SinkOptions;
  readonly #known: TraceLocationCache;
  readonly #recent = new RecentEvents();
  readonly #schemas: RecordSchemas;
  readonly #inFlight = new Set<string>();
  readonly #deferredTopics: DeferredTopics;
  #recovering: NodeJS.Timeout | undefined;
  #hideMetrics: (() => void)[] = [];
  #mismatch: RunlakeError | undefined;
  /**
   * True after a failure: `runs` may be ahead of the tables that hold trace locations, so recovery runs before the next
   * batch.
   */
  #needsRecovery = false;

  constructor(options: SinkOptions) {
    this.#options = options;
    this.#known = new TraceLocationCache(cachedTraceLocations);
    this.#deferredTopics = new DeferredTopics(options.database);
    this.#schemas = new RecordSchemas(options.log);
  }

  /** Completes the unfinished inserts of an earlier process, then consumes `topics`. */
  async start(topics: readonly Topic[]): Promise<void> {
    const { config, log, database, clickhouse } = this.#options;
    await this.#recover();
    this.#hideMetrics = [
      deferredNow.showing(() => countDeferred(database)),
      newestVisibleAge.showing(() => ageOfNewestVisible(clickhouse), 0),
    ];
    for (const topic of topics) {
      await log.subscribe({
        topic,
        group: storingGroup(topic),
        limits: { rows: config.insertBatchRows, bytes: config.insertBatchBytes },
        assigned: () => this.#deferredTopics.forget(topic.name),
        handle: (batch) => this.#handle(batch),
      });
    }
  }

  stop(): void {
    clearTimeout(this.#recovering);
    for (const hide of this.#hideMetrics) hide();
  }

  /** @throws SCHEMA_MISMATCH while schema and table disagree; no batch can be stored until an operator resolves it. */
  async check(): Promise<void> {
    if (this.#mismatch !== undefined) throw this.#mismatch;
  }

  async #handle(batch: LogBatch): Promise<void> {
    try {
      if (this.#needsRecovery) await this.#recover();
      const { good: found, poison } = await this.#inspect(batch);
      const good = prepareRecords(batch.topic, found);
      if (batch.topic.placedByTrace) await this.#storeRunEvents(batch, good);
      else await this.#insert(batch, good);
      await this.#sendToDeadLetters(batch, poison);
      this.#mismatch = undefined;
    } catch (error) {
      if (isRunlakeError(error) && error.code === 'SCHEMA_MISMATCH') this.#mismatch = error;
      this.#needsRecovery = true;
      this.#recoverSoon();
      throw error;
    }
  }

  /** Step 1. */
  async #inspect(batch: LogBatch): Promise<{ good: ValidRecord[]; poison: Poison[] }> {
    const inspection = {
      topic: batch.topic,
      schemas: await this.#schemas.of(batch.topic, batch.records),
      bounds: acceptedTimes(this.#options.config),
    };
    const good: ValidRecord[] = [];
    const poison: Poison[] = [];
    for (const record of batch.records) {
      const verdict = inspectRecord(record, inspection);
      if (verdict.kind === 'good') good.push(verdict);
      else poison.push(verdict);
    }
    return { good, poison };
  }

  /** Step 6. */
  async #sendToDeadLetters(batch: LogBatch, poison: readonly Poison[]): Promise<void> {
    const { log, logger } = this.#options;
    for (const { record, reason, step } of poison) {
      logger.warn({ topic: batch.topic.name, offset: record.offset, reason }, 'poison record');
      await log.deadLetter(batch.topic, record, reason, step);
      deadLetters.inc({ topic: batch.topic.name, step });
    }
  }

  /** Steps 2 to 5 for run events. */
  async #storeRunEvents(batch: LogBatch, good: readonly ValidRecord[]): Promise<void> {
    const { database, clickhouse, onHoursMarked } = this.#options;
    const keys = new Set(good.map(({ record }) => traceKeyOf(record.value)));
    const locations = await this.#known.locate(keys, clickhouse);
    const { located, deferred, newTraces, moved } = assignTraceLocations(good, locations);
    movedEvents.inc(moved);
    deferredEvents.inc(deferred.length);
    if (deferred.length > 0) {
      const records = deferred.map(({ record }) => record);
      await deferEvents(database, { topic: batch.topic.name, salt: batch.tokenSalt ?? '' }, records);
      this.#deferredTopics.add(batch.topic.name);
    }
    await this.#insertDeferred(batch, located, locations);
    await this.#insertOnce(located, (fresh) => this.#insert(batch, fresh));
    for (const key of newTraces) this.#known.remember(key, locations.get(key) as TraceLocation);
    onHoursMarked();
  }

  /** Step 3. Any event of a trace releases its deferred events, even if the trace was known before. */
  async #insertDeferred(
    batch: LogBatch,
    located: readonly ValidRecord[],
    locations: ReadonlyMap<string, TraceLocation>,
  ): Promise<void> {
    const { database } = this.#options;
    const topic = batch.topic.name;
    if (located.length === 0) return;
    if (!(await this.#deferredTopics.has(topic))) return;
    const traces = new Map(
      located.map(({ record: { value } }) => [
        traceKeyOf(value),
        { tenantId: tenantIdOf(value), traceId: traceIdOf(value) },
      ]),
    );
    const events = await claimDeferredEvents(database, topic, [...traces.values()]);
    if (events.length === 0) return;
    const released = events.map(({ record }) => ({
      record: moveTo(record, locations.get(traceKeyOf(record.value)) as TraceLocation),
      original: record,
      schemaId: schemaIdOf(record.value) as number,
    }));
    await this.#schemas.of(
      batch.topic,
      released.map(({ record }) => record),
    );
    await this.#insertOnce(released, async (fresh) => {
      if (fresh.length === 0) await releaseEvents(database, events);
      return this.#insert(batch, fresh, (transaction) => releaseEvents(transaction, events));
    });
    await this.#deferredTopics.refresh(topic);
  }

  /** Inserts `events` except those that repeat stored ones, and remembers the inserted ones. */
  async #insertOnce(
    events: readonly ValidRecord[],
    insert: (fresh: readonly ValidRecord[]) => Promise<readonly LogRecord[]>,
  ): Promise<void> {
    const { fresh, repeats, remember } = this.#recent.withoutRepeats(events);
    const refused = await insert(fresh);
    remember(new Set(refused));
    repeatedEvents.inc(repeats);
  }

  /**
   * Step 4. `also` runs in the transaction that completes the last insert batch. @returns the refused records, as they
   * were in the log.
   */
  async #insert(
    batch: LogBatch,
    records: readonly ValidRecord[],
    also?: (transaction: Sql) => Promise<void>,
  ): Promise<readonly LogRecord[]> {
    const allRefused: LogRecord[] = [];
    const { config, logger } = this.#options;
    const limits = { rows: config.insertBatchRows, bytes: config.insertBatchBytes };
    const insertBatches = splitIntoInsertBatches(batch.topic, records, limits);
    for (const [index, batchRecords] of insertBatches.entries()) {
      const schemaId = (batchRecords[0] as ValidRecord).schemaId;
      const insert = {
        topic: batch.topic,
        partition: batch.partition,
        schema: this.#schemas.get(batch.topic, schemaId) as RecordSchema,
        records: batchRecords,
        begin: (begun: InsertBatch) => batch.beginInsert(begun),
        ...(batch.tokenSalt === undefined ? {} : { tokenSalt: batch.tokenSalt }),
        ...(also && index === insertBatches.length - 1 ? { also } : {}),
      };
      const deps = { ...this.#options, inFlight: this.#inFlight };
      const refused = await traceInsert(insert, () => insertBatch(insert, deps));
      for (const { offset } of refused)
        logger.warn({ topic: batch.topic.name, offset }, 'record refused by ClickHouse');
      allRefused.push(...refused);
    }
    return allRefused;
  }

  async #recover(): Promise<void> {
    await recoverInserts(this.#options, this.#inFlight);
    this.#needsRecovery = false;
    this.#options.onHoursMarked();
  }

  /** Retries recovery every second after a failure, even if no further batch arrives. */
  #recoverSoon(): void {
    this.#recovering ??= setTimeout(() => {
      this.#recovering = undefined;
      this.#recover().catch((error: unknown) => {
        this.#options.logger.warn({ err: error }, 'an unfinished insert could not be completed yet');
        this.#recoverSoon();
      });
    }, 1_000).unref();
  }
}
