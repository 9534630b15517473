import type { ClickHouse, InsertBody } from '../../../../infra/clickhouse/clickhouse.ts';
import { loadConfig } from '../../../../infra/config/load.ts';
import type { Config } from '../../../../infra/config/settings.ts';
import { AvroWriter, buildContainerSchema, buildWirePrefix } from '../../../../infra/event-log/avro.ts';
import {
  computeRecordVersion,
  type EventLog,
  type LogMessage,
  type Subscription,
} from '../../../../infra/event-log/event-log.ts';
import { openInProcessLog } from '../../../../infra/event-log/in-process/in-process-log.ts';
import { encodeRunEvent, type RunEvent } from '../../../../pipelines/ingest/run-event/run-event.ts';
import { Sink } from '../../../../pipelines/ingest/sink/sink.ts';
import { runEvents, type Topic, topics } from '../../../../schemas/topics.ts';
import { addColumns, runOnEveryServer } from '../../../engines/on-stored-table.ts';
import { type FreshStores, freshStores } from '../../../engines/stores.ts';
import { logger } from '../../../silent-logger.ts';
import { overrideLog } from './driven-sink.ts';

export interface SinkUnderTest {
  readonly stores: FreshStores;
  readonly log: EventLog;
  readonly sink: Sink;
  /** Attempted inserts of events, in order. */
  readonly inserts: InsertBody[];
  /** Calls `around` once instead of the next insert of events; `around` may call the insert. */
  aroundNextInsert(around: (insert: () => Promise<void>) => Promise<void>): void;
  /** Publishes run events; resolves when the sink has processed them, and rejects if the sink rejects them. */
  publish(...events: (RunEvent | Buffer)[]): Promise<void>;
  rows<Row = Record<string, unknown>>(sql: string): Promise<Row[]>;
  /** Returns the dirty hours as ISO text, sorted. */
  dirtyHours(): Promise<string[]>;
  /** Reopens log and sink on the same stores, as after a crash. */
  restarted(): Promise<SinkUnderTest>;
  close(): Promise<void>;
}

/** The tests use arbitrary start times, so the configuration accepts old runs. */
const defaults = { ...loadConfig({}).config, maxRunAgeDays: 3_000 };

/** Opens a log and a sink on real stores; the test injects errors between sink and ClickHouse. */
export async function openSink(config: Partial<Config> = {}, stores?: FreshStores): Promise<SinkUnderTest> {
  const own = stores ?? (await freshStores());
  const { database } = own;
  const inserts: InsertBody[] = [];
  let around: ((insert: () => Promise<void>) => Promise<void>) | undefined;
  const clickhouse: ClickHouse = {
    ...own.clickhouse,
    async insertBody(insert) {
      if (insert.table === 'event_versions') return own.clickhouse.insertBody(insert);
      inserts.push(insert);
      const now = around;
      around = undefined;
      const real = () => own.clickhouse.insertBody(insert);
      await (now === undefined ? real() : now(real));
    },
  };
  const log = passToConsumers(
    await openInProcessLog({
      clickhouse: own.clickhouse,
      database,
      topics,
      partitions: 1,
      maxPendingBytes: 2 ** 28,
      logger,
    }),
  );
  const sink = new Sink({
    log,
    clickhouse,
    database,
    config: { ...defaults, ...config },
    logger,
    onHoursMarked: () => {},
  });
  await sink.start(topics);
  return {
    stores: own,
    log,
    sink,
    inserts,
    aroundNextInsert: (next) => {
      around = next;
    },
    publish: (...events) => log.publish(runEvents, events.map(toLogMessage)),
    rows: (sql) => own.clickhouse.query({ name: 'test', sql }),
    async dirtyHours() {
      const dirtyHours = await database.query<{ hour: Date | string }>(
        'SELECT DISTINCT hour FROM usage_dirty_hours ORDER BY hour',
      );
      return dirtyHours.map(({ hour }) => new Date(hour).toISOString());
    },
    async restarted() {
      sink.stop();
      return openSink(config, own);
    },
    async close() {
      await log.close();
      sink.stop();
      await own.close();
    },
  };
}

/** Returns a log that passes each request to the consumers before `publish` resolves, instead of storing it. */
function passToConsumers(real: EventLog): EventLog {
  const subscriptions: Subscription[] = [];
  let nextOffset = Date.now() * 1_000;
  const publish: EventLog['publish'] = async (topic, messages) => {
    const records = messages.map(({ key, value, headers = {} }) => {
      const offset = nextOffset++;
      const version = computeRecordVersion(Math.floor(offset / 1_000), offset % 1_000, headers);
      return { partition: 0, offset, key, value, headers, version };
    });
    const own = subscriptions.filter((each) => each.topic === topic);
    for (const { handle } of own) await handle({ topic, partition: 0, records });
  };
  return overrideLog(real, { publish, subscribe: async (to) => void subscriptions.push(to) });
}

/** Returns an event as the API writes it to the log; a Buffer is written unchanged. */
export function toLogMessage(event: RunEvent | Buffer): LogMessage {
  if (Buffer.isBuffer(event)) return { key: 'any', value: event, headers: { from: 'test' } };
  return { key: `${event.tenantId}:${event.traceId}`, value: framed(event) };
}

/**
 * Adds the field `weather` to runs, as the migration of a later release would: field, stored column, alias and view.
 */
export async function addWeather(clickhouse: ClickHouse): Promise<void> {
  await addColumns(clickhouse, 'run_events', 'ADD COLUMN weather Nullable(String)');
  await addColumns(
    clickhouse,
    'runs',
    `ADD COLUMN ranked_weather SimpleAggregateFunction(max, String),
    ADD COLUMN weather Nullable(String) ALIAS if(empty(ranked_weather), NULL, substring(ranked_weather, 9))`,
  );
  const [view] = await clickhouse.query<{ select: string }>({
    name: 'test',
    sql: `SELECT as_select AS select FROM system.tables WHERE database = currentDatabase() AND name = 'runs_of_events'`,
  });
  const column = ", ifNull(concat(rank_bytes, weather), '') AS ranked_weather";
  const select = view?.select.replace(' FROM ', `${column} FROM `);
  await runOnEveryServer(clickhouse, `ALTER TABLE runs_of_events MODIFY QUERY ${select}`);
}

/** Returns the Avro container schema and the columns that the sink uses for a topic. */
export function buildContainer(topic: Topic): { containerSchema: string; columns: string[] } {
  return {
    containerSchema: buildContainerSchema(topic.schema, topic.prefix),
    columns: [...topic.prefix, ...topic.columns],
  };
}

/** Returns one run event in the wire format. */
export function framed(event: RunEvent): Buffer {
  const writer = new AvroWriter(1_024);
  writer.raw(buildWirePrefix(1));
  encodeRunEvent(writer, event);
  return Buffer.from(writer.since(0));
}

/** Returns a copy of the event's bytes with `change` applied. */
export function damaged(event: RunEvent, change: (copy: Buffer) => Buffer | undefined): Buffer {
  const copy = framed(event);
  return change(copy) ?? copy;
}
