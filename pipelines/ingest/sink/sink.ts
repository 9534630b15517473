/**
 * The sink: takes batches of the event log into ClickHouse.
 *
 * Invariant: one batch a partition at a time and in the order of the log, because order decides values; nothing of a
 * batch is acknowledged before all of it is stored, parked or among the dead letters.
 *
 *   1. Each record is inspected without decoding; what can never be stored is put aside. What is not to be kept is left
 *      out, and what stays gets its place in the log where its table stores that (`settle-in-log.ts`).
 *   2. Run events take the project and time of their trace. Those of unknown traces are parked in Postgres.
 *   3. Parked events of traces that this batch made known are inserted, before the batch's own: they are older. Events that repeat
 *      stored ones are dropped, of both (`recent-events.ts`).
 *   4. The batch is split into cuts, and each is inserted in its turn (`insert-cut.ts`).
 *   5. The places of new traces are remembered, and the usage roll-up is woken.
 *   6. What was put aside goes to the dead letters: last, so that a batch that comes again while ClickHouse is away does
 *      not leave a letter each time.
 *
 * A batch that fails half-way comes again whole, or its publishers send again; what is stored already merges.
 */
import type { Warehouse } from '../../../infra/clickhouse/warehouse.ts';
import type { Config } from '../../../infra/config/settings.ts';
import { isRunlakeError, type RunlakeError } from '../../../infra/errors/runlake-error.ts';
import {
  type Cut,
  type EventLog,
  type LogBatch,
  type LogRecord,
  storingGroup,
} from '../../../infra/event-log/event-log.ts';
import { schemaIdOf } from '../../../infra/event-log/wire-format.ts';
import type { Database, Sql } from '../../../infra/postgres/pool.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import { traceCut } from '../../../infra/telemetry/tracing/cut-span.ts';
import type { Topic } from '../../../schemas/topics.ts';
import { tenantIdOf, traceIdOf, traceKeyOf } from '../run-event/key-fields.ts';
import { insertCut } from './insert-cut.ts';
import { acceptedTimes, inspectRecord, type Poison } from './inspect-record.ts';
import { KnownTraces, type TracePlace } from './known-traces.ts';
import { claimParkedEvents, countParked, parkEvents, unparkEvents } from './parked-events.ts';
import { moveTo, placeByTrace } from './place-by-trace.ts';
import { RecentEvents } from './recent-events.ts';
import { type RecordSchema, RecordSchemas } from './record-schemas.ts';
import { recoverCuts } from './recover-cuts.ts';
import { settleInLog } from './settle-in-log.ts';
import { deadLetters, movedEvents, newestVisibleAge, parkedEvents, parkedNow, repeatedEvents } from './sink-metrics.ts';
import { SomeParked } from './some-parked.ts';
import { type GoodRecord, splitIntoCuts } from './split-into-cuts.ts';
import { ageOfNewestVisible } from './visible-runs.ts';

export interface SinkOptions {
  readonly log: EventLog;
  readonly warehouse: Warehouse;
  readonly database: Database;
  readonly config: Pick<Config, 'cutRows' | 'cutBytes' | 'knownTraces' | 'maxRunAgeDays' | 'maxRunAheadHours'>;
  readonly logger: Logger;
  /** Called when hours were noted. */
  readonly onHoursNoted: () => void;
}

export class Sink {
  readonly #options: SinkOptions;
  readonly #known: KnownTraces;
  readonly #recent = new RecentEvents();
  readonly #schemas: RecordSchemas;
  readonly #underWay = new Set<string>();
  readonly #someParked: SomeParked;
  #recovering: NodeJS.Timeout | undefined;
  #hideMetrics: (() => void)[] = [];
  #mismatch: RunlakeError | undefined;
  /** After a failure: `runs` may hold what the tables that decide places do not know yet, so those are completed first. */
  #halfDone = false;

  constructor(options: SinkOptions) {
    this.#options = options;
    this.#known = new KnownTraces(options.config.knownTraces);
    this.#someParked = new SomeParked(options.database);
    this.#schemas = new RecordSchemas(options.log);
  }

  /** Repairs what an earlier process left half done, then consumes `topics`. */
  async start(topics: readonly Topic[]): Promise<void> {
    const { config, log, database, warehouse } = this.#options;
    await this.#recover();
    this.#hideMetrics = [
      parkedNow.showing(() => countParked(database)),
      newestVisibleAge.showing(() => ageOfNewestVisible(warehouse), 0),
    ];
    for (const topic of topics) {
      await log.subscribe({
        topic,
        group: storingGroup(topic),
        limits: { rows: config.cutRows, bytes: config.cutBytes },
        assigned: () => this.#someParked.forget(topic.name),
        handle: (batch) => this.#handle(batch),
      });
    }
  }

  stop(): void {
    clearTimeout(this.#recovering);
    for (const hide of this.#hideMetrics) hide();
  }

  /** @throws SCHEMA_MISMATCH while schema and table disagree, which no later batch can pass. */
  async check(): Promise<void> {
    if (this.#mismatch !== undefined) throw this.#mismatch;
  }

  async #handle(batch: LogBatch): Promise<void> {
    try {
      if (this.#halfDone) await this.#recover();
      const { good: found, poison } = await this.#inspect(batch);
      const good = settleInLog(batch.topic, found);
      if (batch.topic.placedByTrace) await this.#storePlaced(batch, good);
      else await this.#insert(batch, good);
      await this.#bury(batch, poison);
      this.#mismatch = undefined;
    } catch (error) {
      if (isRunlakeError(error) && error.code === 'SCHEMA_MISMATCH') this.#mismatch = error;
      this.#halfDone = true;
      this.#recoverSoon();
      throw error;
    }
  }

  /** Step 1. */
  async #inspect(batch: LogBatch): Promise<{ good: GoodRecord[]; poison: Poison[] }> {
    const inspection = {
      topic: batch.topic,
      schemas: await this.#schemas.of(batch.topic, batch.records),
      bounds: acceptedTimes(this.#options.config),
    };
    const good: GoodRecord[] = [];
    const poison: Poison[] = [];
    for (const record of batch.records) {
      const verdict = inspectRecord(record, inspection);
      if (verdict.kind === 'good') good.push(verdict);
      else poison.push(verdict);
    }
    return { good, poison };
  }

  /** Step 6. */
  async #bury(batch: LogBatch, poison: readonly Poison[]): Promise<void> {
    const { log, logger } = this.#options;
    for (const { record, reason, step } of poison) {
      logger.warn({ topic: batch.topic.name, offset: record.offset, reason }, 'poison record');
      await log.deadLetter(batch.topic, record, reason, step);
      deadLetters.inc({ topic: batch.topic.name, step });
    }
  }

  /** Steps 2 to 5 for events of traces. */
  async #storePlaced(batch: LogBatch, good: readonly GoodRecord[]): Promise<void> {
    const { database, warehouse, onHoursNoted } = this.#options;
    const keys = new Set(good.map(({ record }) => traceKeyOf(record.value)));
    const places = await this.#known.placesOf(keys, warehouse);
    const { placed, parked, newTraces, moved } = placeByTrace(good, places);
    movedEvents.inc(moved);
    parkedEvents.inc(parked.length);
    if (parked.length > 0) {
      const records = parked.map(({ record }) => record);
      await parkEvents(database, { topic: batch.topic.name, salt: batch.tokenSalt ?? '' }, records);
      this.#someParked.expect(batch.topic.name);
    }
    await this.#joinParked(batch, placed, places);
    await this.#insertOnce(placed, (fresh) => this.#insert(batch, fresh));
    for (const key of newTraces) this.#known.remember(key, places.get(key) as TracePlace);
    onHoursNoted();
  }

  /** Step 3. Any event of the trace makes the parked ones join, also one of a trace that was known all along. */
  async #joinParked(
    batch: LogBatch,
    placed: readonly GoodRecord[],
    places: ReadonlyMap<string, TracePlace>,
  ): Promise<void> {
    const { database } = this.#options;
    const topic = batch.topic.name;
    if (placed.length === 0) return;
    if (!(await this.#someParked.any(topic))) return;
    const traces = new Map(
      placed.map(({ record: { value } }) => [
        traceKeyOf(value),
        { tenantId: tenantIdOf(value), traceId: traceIdOf(value) },
      ]),
    );
    const events = await claimParkedEvents(database, topic, [...traces.values()]);
    if (events.length === 0) return;
    const joined = events.map(({ record }) => ({
      record: moveTo(record, places.get(traceKeyOf(record.value)) as TracePlace),
      came: record,
      schemaId: schemaIdOf(record.value) as number,
    }));
    await this.#schemas.of(
      batch.topic,
      joined.map(({ record }) => record),
    );
    await this.#insertOnce(joined, async (fresh) => {
      if (fresh.length === 0) await unparkEvents(database, events);
      return this.#insert(batch, fresh, (transaction) => unparkEvents(transaction, events));
    });
    await this.#someParked.askAgain(topic);
  }

  /** Leaves out events that repeat stored ones, and remembers the others once they are stored. */
  async #insertOnce(
    events: readonly GoodRecord[],
    insert: (fresh: readonly GoodRecord[]) => Promise<readonly LogRecord[]>,
  ): Promise<void> {
    const { fresh, repeats, remember } = this.#recent.withoutRepeats(events);
    const refused = await insert(fresh);
    remember(new Set(refused));
    repeatedEvents.inc(repeats);
  }

  /** Step 4. `also` runs in the transaction that follows the last cut. @returns the records that ClickHouse refused, as they came. */
  async #insert(
    batch: LogBatch,
    records: readonly GoodRecord[],
    also?: (transaction: Sql) => Promise<void>,
  ): Promise<readonly LogRecord[]> {
    const allRefused: LogRecord[] = [];
    const { config, logger } = this.#options;
    const limits = { rows: config.cutRows, bytes: config.cutBytes };
    const cuts = splitIntoCuts(batch.topic, records, limits);
    for (const [index, cut] of cuts.entries()) {
      const schemaId = (cut[0] as GoodRecord).schemaId;
      const insert = {
        topic: batch.topic,
        partition: batch.partition,
        schema: this.#schemas.get(batch.topic, schemaId) as RecordSchema,
        records: cut,
        writeDown: (written: Cut) => batch.writeDownCut(written),
        ...(batch.tokenSalt === undefined ? {} : { tokenSalt: batch.tokenSalt }),
        ...(also && index === cuts.length - 1 ? { also } : {}),
      };
      const ports = { ...this.#options, underWay: this.#underWay };
      const refused = await traceCut(insert, () => insertCut(insert, ports));
      for (const { offset } of refused)
        logger.warn({ topic: batch.topic.name, offset }, 'record refused by ClickHouse');
      allRefused.push(...refused);
    }
    return allRefused;
  }

  async #recover(): Promise<void> {
    await recoverCuts(this.#options, this.#underWay);
    this.#halfDone = false;
    this.#options.onHoursNoted();
  }

  /** After a failure a cut that was written down is completed as soon as the engines answer, also where no batch follows. */
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
