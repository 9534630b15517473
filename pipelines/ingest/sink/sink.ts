/**
 * The sink: stores batches of the event log in ClickHouse.
 *
 * Invariant: the sink acknowledges a batch only after every record of it is stored, deferred or in the dead-letter
 * queue. Batches may be repeated, divided in another way, and handled by several processes at once: the rows of an
 * event have its version, and merging keeps the newest value (`schemas/clickhouse/0001_runs.sql`).
 *
 *   1. Inspect each record without decoding it. Set aside the records that can never be stored, drop those that are not
 *      to be stored, and write partition and offset into the others if their table stores them (`prepare-records.ts`).
 *   2. Assign run events the project, time and lifetime of their trace. Defer events of unknown traces in Postgres.
 *      For deleted traces, store only the deletion of their runs. The rows of other topics get the lifetime of their
 *      run (`expire-with-runs.ts`).
 *   3. Assign run events the key time of their run (`assign-key-times.ts`), and events that repeat stored events the
 *      versions of those (`event-versions.ts`). Split the events into insert batches and insert them one after the other
 *      (`insert-batch.ts`). Deferred events of traces that are known now are part of this, because a repeat must be
 *      handled after the event that it repeats. Then delete feedback of other runs (`delete-moved-feedback.ts`).
 *   4. Move the events of traces that were stored under several locations (`settle-traces.ts`). Then delete the deferred
 *      events that were inserted, and repeat steps 3 and 4 with the next ones: they are read in slices of bounded size, in
 *      the order of their versions.
 *   5. Insert deferred events again as in steps 3 and 4: if another process handles an event of the same trace, at least
 *      one of the two processes finds what the other one has stored.
 *   6. Cache the locations of new traces and wake the usage roll-up.
 *   7. Send the records set aside in step 1 to the dead-letter queue. This comes last, so that a batch that is
 *      redelivered while ClickHouse is down does not write a dead-letter record each time. Deferred events that cannot be
 *      stored any more are sent before they are deleted in step 4.
 *
 * After a failure the log delivers the whole batch again.
 */
import type { ClickHouse } from '../../../infra/clickhouse/clickhouse.ts';
import type { Config } from '../../../infra/config/settings.ts';
import { isRunlakeError, type RunlakeError } from '../../../infra/errors/runlake-error.ts';
import { buildWirePrefix } from '../../../infra/event-log/avro.ts';
import { type EventLog, getSinkGroup, type LogBatch, type LogRecord } from '../../../infra/event-log/event-log.ts';
import { runExclusive } from '../../../infra/fairness/run-exclusive.ts';
import type { Database } from '../../../infra/postgres/pool.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import { traceInsert } from '../../../infra/telemetry/tracing/spans.ts';
import { feedbackEvents, type Topic } from '../../../schemas/topics.ts';
import {
  computeLifetime,
  defaultRetention,
  ProjectRetentions,
  type RetentionConfig,
} from '../../retention/lifetimes.ts';
import { type TraceMark, TraceMarks } from '../../retention/trace-marks.ts';
import { buildDeletionEvent, buildTraceKey, readProjectId, readTraceKey } from '../run-event/run-event.ts';
import { KeyTimes } from './assign-key-times.ts';
import {
  assignTraceLocations,
  extendLifetime,
  moveDeferredEvent,
  moveToLocation,
  parseTraceKey,
  readLocations,
  type TraceLocation,
  TraceLocationCache,
} from './assign-trace-locations.ts';
import {
  claimDeferredEvents,
  countDeferredEvents,
  deferEvents,
  hasDeferredEvents,
  releaseEvents,
} from './deferred-events.ts';
import { deleteMovedFeedback } from './delete-moved-feedback.ts';
import { EventVersions } from './event-versions.ts';
import { expireWithRuns, keepTracesWithFeedback } from './expire-with-runs.ts';
import { insertBatch } from './insert-batch.ts';
import {
  computeAcceptedTimes,
  inspectRecord,
  type PoisonRecord,
  prepareRecords,
  type RecordSchema,
  RecordSchemas,
} from './prepare-records.ts';
import { findContestedTraces, hasContestedTraces, markTracesContested, settleTrace } from './settle-traces.ts';
import {
  deadLetters,
  deferredEventCount,
  deferredEvents,
  movedEvents,
  newestVisibleAge,
  readNewestVisibleRunAge,
  repeatedEvents,
} from './sink-metrics.ts';
import { splitIntoInsertBatches, type ValidRecord, type ValidRunEvent } from './split-into-batches.ts';

/** Maximum number of trace locations in memory, which take about 100 MB. The sink reads all others from ClickHouse. */
const maxCachedTraceLocations = 1_000_000;
/** Maximum number of traces that are moved at once. Each holds a connection to Postgres, and needs another one. */
const maxSettling = 3;

export interface SinkOptions {
  readonly log: EventLog;
  readonly clickhouse: ClickHouse;
  readonly database: Database;
  readonly config: Pick<Config, 'insertBatchRows' | 'insertBatchBytes' | 'maxRunAgeDays'> & RetentionConfig;
  readonly logger: Logger;
  /** Called after hours were marked dirty. */
  readonly onHoursMarked: () => void;
}

/** What the steps for run events of a batch have in common. Moving a trace changes its location. */
interface StoringDeps {
  readonly batch: LogBatch;
  readonly locations: Map<string, TraceLocation>;
  readonly newTraces: readonly string[];
  readonly contested: Set<string>;
  readonly marks: readonly TraceMark[];
}

const compareVersions = (one: LogRecord, other: LogRecord) => Number(one.version - other.version);

/** Adds the trace key to a record. The key is read once for all steps, because reading it creates a string. */
function addTraceKey({ record, schemaId }: ValidRecord): ValidRunEvent {
  return { record, schemaId, traceKey: readTraceKey(record.value) };
}

export class Sink {
  readonly #options: SinkOptions;
  readonly #known: TraceLocationCache;
  readonly #keyTimes = new KeyTimes();
  readonly #runVersions = new EventVersions();
  /** Versions of other events, which are few. They are looked up each time. */
  readonly #otherVersions = new EventVersions(1_000);
  readonly #retentions: ProjectRetentions;
  readonly #marks: TraceMarks;
  readonly #schemas: RecordSchemas;
  #hideMetrics: (() => void)[] = [];
  #mismatch: RunlakeError | undefined;

  constructor(options: SinkOptions) {
    this.#options = options;
    this.#known = new TraceLocationCache(maxCachedTraceLocations);
    this.#schemas = new RecordSchemas(options.log);
    this.#retentions = new ProjectRetentions(options.database);
    this.#marks = new TraceMarks(options.clickhouse);
  }

  /** Consumes `topics`. */
  async start(topics: readonly Topic[]): Promise<void> {
    const { config, log, database, clickhouse } = this.#options;
    this.#hideMetrics = [
      deferredEventCount.setReader(() => countDeferredEvents(database)),
      newestVisibleAge.setReader(() => readNewestVisibleRunAge(clickhouse), 0),
    ];
    for (const topic of topics) {
      await log.subscribe({
        topic,
        group: getSinkGroup(topic),
        limits: { rows: config.insertBatchRows, bytes: config.insertBatchBytes },
        handle: (batch) => this.#handle(batch),
      });
    }
  }

  stop(): void {
    for (const hide of this.#hideMetrics) hide();
  }

  /** @throws SCHEMA_MISMATCH while schema and table disagree. No batch is stored until an operator resolves it. */
  async check(): Promise<void> {
    if (this.#mismatch !== undefined) throw this.#mismatch;
  }

  async #handle(batch: LogBatch): Promise<void> {
    try {
      const { good: found, poison } = await this.#inspect(batch.topic, batch.records);
      const good = prepareRecords(batch.topic, found);
      if (batch.topic.assignsTraceLocation) await this.#storeRunEvents(batch, good.map(addTraceKey));
      else await this.#storeOtherEvents(batch, good);
      await this.#sendToDeadLetters(batch.topic, poison);
      this.#mismatch = undefined;
    } catch (error) {
      if (isRunlakeError(error) && error.code === 'SCHEMA_MISMATCH') this.#mismatch = error;
      throw error;
    }
  }

  /** Performs step 1. */
  async #inspect(
    topic: Topic,
    records: readonly LogRecord[],
  ): Promise<{ good: ValidRecord[]; poison: PoisonRecord[] }> {
    const { config } = this.#options;
    const inspection = {
      topic,
      schemas: await this.#schemas.of(topic, records),
      config,
      bounds: computeAcceptedTimes(config),
    };
    const good: ValidRecord[] = [];
    const poison: PoisonRecord[] = [];
    for (const record of records) {
      const verdict = inspectRecord(record, inspection);
      if (verdict.kind === 'good') good.push(verdict);
      else poison.push(verdict);
    }
    return { good, poison };
  }

  /** Performs step 7. */
  async #sendToDeadLetters(topic: Topic, poison: readonly PoisonRecord[]): Promise<void> {
    const { log, logger } = this.#options;
    for (const { record, reason, step } of poison) {
      logger.warn({ topic: topic.name, offset: record.offset, reason }, 'poison record');
      await log.deadLetter(topic, record, reason, step);
      deadLetters.inc({ topic: topic.name, step });
    }
  }

  /** Performs steps 2 and 3 for events of other topics. */
  async #storeOtherEvents(batch: LogBatch, good: readonly ValidRecord[]): Promise<void> {
    const { clickhouse, config, database } = this.#options;
    const deps = { clickhouse, config, retentions: this.#retentions, marks: this.#marks };
    const kept = batch.topic.expires ? await expireWithRuns(batch.topic, good, deps) : good;
    const { events, repeats } = await this.#otherVersions.assign(batch.topic, kept, clickhouse);
    repeatedEvents.inc({ topic: batch.topic.name }, repeats);
    await this.#insert(batch, events);
    if (batch.topic === feedbackEvents) await deleteMovedFeedback(clickhouse, events);
    if (batch.topic === feedbackEvents) await keepTracesWithFeedback(database, config, good);
  }

  /** Performs steps 2 to 6 for run events. */
  async #storeRunEvents(batch: LogBatch, good: readonly ValidRunEvent[]): Promise<void> {
    const { database, clickhouse, config, log, onHoursMarked } = this.#options;
    // Another process may have stored runs of the traces, also of those whose location this process has determined.
    if (!log.isExclusive && this.#keyTimes.noteBatch(batch)) this.#known.clear();
    const keys = new Set(good.map(({ traceKey: key }) => key));
    const contested = new Set<string>();
    const [locations, retentions, marks, hasDeferred] = await Promise.all([
      this.#known.locate(keys, clickhouse, contested),
      this.#retentions.of(good.map(({ record }) => readProjectId(record.value))),
      this.#marks.of([...keys].map(parseTraceKey)),
      hasDeferredEvents(database, batch.topic.name),
    ]);
    // Without its location, a late event of a deleted trace would be counted in the hour that it states itself.
    const deletions = marks.filter(({ isDeleted }) => isDeleted);
    const deletedKeys = new Set(deletions.map(({ tenantId, traceId }) => buildTraceKey(tenantId, traceId)));
    const kept = good.filter(({ traceKey: key }) => locations.has(key) || !deletedKeys.has(key));
    const { located, deferred, newTraces, moved } = assignTraceLocations(
      kept,
      locations,
      contested,
      (project, micros) => computeLifetime(config, retentions.get(project) ?? defaultRetention, micros),
    );
    movedEvents.inc(moved);
    deferredEvents.inc(deferred.length);
    if (deferred.length > 0) {
      const records = deferred.map(({ record }) => record);
      await deferEvents(database, batch.topic.name, records);
      const unknown = new Set(deferred.map(({ traceKey: key }) => key));
      for (const [key, location] of await this.#known.locate(unknown, clickhouse, contested))
        locations.set(key, location);
    }
    const storing = { batch, locations, newTraces, contested, marks };
    const listKeys = (events: readonly ValidRunEvent[]) => new Set(events.map(({ traceKey: key }) => key));
    await this.#insertRunEvents(storing, located, hasDeferred ? listKeys(located) : undefined);
    if (await hasDeferredEvents(database, batch.topic.name))
      await this.#insertRunEvents(storing, [], listKeys([...located, ...deferred]));
    for (const key of newTraces) this.#known.remember(key, locations.get(key) as TraceLocation);
    this.#keyTimes.noteStored(batch);
    onHoursMarked();
  }

  /**
   * Performs steps 3 and 4 for `located`, and for the deferred events of the traces `releasing`. Any event of a trace
   * releases its deferred events, even if the trace was known before.
   */
  async #insertRunEvents(
    storing: StoringDeps,
    located: readonly ValidRunEvent[],
    releasing: ReadonlySet<string> = new Set(),
  ): Promise<void> {
    const { database } = this.#options;
    const { batch, locations } = storing;
    const traces = [...releasing].filter((key) => locations.has(key)).map(parseTraceKey);
    for (let rest = located; ; ) {
      const { events: claimed, hasMore } = await claimDeferredEvents(database, batch.topic.name, traces);
      // Another log may have deferred them, whose schema ids this log does not have.
      const { good, poison } = await this.#inspect(
        batch.topic,
        claimed.map(({ record }) => record),
      );
      const released = good.map(({ record }) => moveDeferredEvent(record, locations));
      // An event of the batch may repeat a deferred event that is in a later slice.
      const lastVersions = new Map(released.map(({ traceKey, record }) => [traceKey, record.version]));
      const isInOrder = ({ traceKey, record }: ValidRunEvent) =>
        !hasMore || record.version <= (lastVersions.get(traceKey) ?? -1n);
      await this.#insertInOrder(storing, [...rest.filter(isInOrder), ...released]);
      await this.#sendToDeadLetters(batch.topic, poison);
      await releaseEvents(database, claimed);
      if (!hasMore) return;
      rest = rest.filter((event) => !isInOrder(event));
    }
  }

  /** Performs step 3 and moves events for step 4. */
  async #insertInOrder(storing: StoringDeps, unordered: readonly ValidRunEvent[]): Promise<void> {
    if (unordered.length === 0) return;
    const { clickhouse } = this.#options;
    const { batch, locations, marks } = storing;
    const keyed = await this.#keyTimes.assign(unordered, locations, clickhouse);
    keyed.sort((one, other) => compareVersions(one.record, other.record));
    const { events, repeats } = await this.#runVersions.assign(batch.topic, keyed, clickhouse);
    repeatedEvents.inc({ topic: batch.topic.name }, repeats);
    const marked = await this.#applyMarks(batch.topic, events, marks);
    const refused = new Set(await this.#insert(batch, marked));
    await this.#settle(
      storing,
      marked.filter(({ record, original = record }) => !refused.has(original)),
    );
  }

  /** Gives events of kept traces their longer lifetime. Replaces events of deleted traces by deletions of their runs. */
  async #applyMarks(
    topic: Topic,
    events: readonly ValidRunEvent[],
    marks: readonly TraceMark[],
  ): Promise<readonly ValidRunEvent[]> {
    if (marks.length === 0) return events;
    const marksByKey = new Map(marks.map((mark) => [buildTraceKey(mark.tenantId, mark.traceId), mark]));
    const schemaId = this.#options.log.schemaId(topic);
    const marked = events.map((event): ValidRunEvent => {
      const { record, original = record } = event;
      const mark = marksByKey.get(event.traceKey);
      if (mark === undefined) return event;
      if (!mark.isDeleted) return extendLifetime(event, mark.lifetime);
      const value = buildDeletionEvent(record.value, buildWirePrefix(schemaId));
      return { ...event, record: { ...record, value }, original, schemaId };
    });
    await this.#schemas.of(
      topic,
      marked.map(({ record }) => record),
    );
    return marked;
  }

  /**
   * Moves `events` for step 4. Afterwards each is at the winning location of its trace.
   *
   * If only this process consumes the log, it assigns each location once. The locations of new traces are then not read
   * again.
   */
  async #settle(
    { batch, locations, newTraces, contested }: StoringDeps,
    events: readonly ValidRunEvent[],
  ): Promise<void> {
    const { database, clickhouse, log } = this.#options;
    if (!log.isExclusive) {
      for (const { key, locations: stored } of await readLocations(clickhouse, newTraces.map(parseTraceKey))) {
        if (stored.length > 1) contested.add(key);
      }
    }
    await markTracesContested(database, [...contested].map(parseTraceKey));
    if (contested.size === 0 && (log.isExclusive || !(await hasContestedTraces(database)))) return;
    const keys = new Set(events.map(({ traceKey: key }) => key));
    const contestedTraces = await findContestedTraces(database, [...keys].map(parseTraceKey));
    for (const trace of contestedTraces) {
      const key = buildTraceKey(trace.tenantId, trace.traceId);
      const own = events.filter((event) => event.traceKey === key);
      const winner = await runExclusive(`settle ${batch.partition % maxSettling}`, () =>
        settleTrace({ clickhouse, database }, trace, (location) => {
          const moved = own.map((event) => {
            const extended = extendLifetime(event, location.lifetime);
            const record = moveToLocation(event.record, location);
            return record === event.record ? extended : { ...extended, record, statesLocation: false };
          });
          return this.#insert(batch, moved);
        }),
      );
      if (winner === undefined) continue;
      const known = { ...winner, wasRead: true } as const;
      locations.set(key, known);
      this.#known.remember(key, known);
    }
  }

  /** Inserts records. @returns the refused records, as they were in the log. */
  async #insert(batch: LogBatch, records: readonly ValidRecord[]): Promise<readonly LogRecord[]> {
    const refusedRecords: LogRecord[] = [];
    const { config, logger } = this.#options;
    const limits = { rows: config.insertBatchRows, bytes: config.insertBatchBytes };
    for (const batchRecords of splitIntoInsertBatches(batch.topic, records, limits)) {
      const schemaId = (batchRecords[0] as ValidRecord).schemaId;
      const insert = {
        topic: batch.topic,
        partition: batch.partition,
        schema: this.#schemas.get(batch.topic, schemaId) as RecordSchema,
        records: batchRecords,
      };
      const refused = await traceInsert(insert, () => insertBatch(insert, this.#options));
      for (const { offset } of refused)
        logger.warn({ topic: batch.topic.name, offset }, 'record refused by ClickHouse');
      refusedRecords.push(...refused);
    }
    return refusedRecords;
  }
}
