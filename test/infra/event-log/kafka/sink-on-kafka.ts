import type { ClickHouse, InsertBody } from '../../../../infra/clickhouse/clickhouse.ts';
import { loadConfig } from '../../../../infra/config/load.ts';
import type { Config } from '../../../../infra/config/settings.ts';
import type { EventLog, LogMessage } from '../../../../infra/event-log/event-log.ts';
import type { Database } from '../../../../infra/postgres/pool.ts';
import type { RunEvent } from '../../../../pipelines/ingest/run-event/run-event.ts';
import { Sink } from '../../../../pipelines/ingest/sink/sink.ts';
import { runEvents } from '../../../../schemas/topics.ts';
import { framed } from '../../../pipelines/ingest/sink/sink-under-test.ts';
import { logger } from '../../../silent-logger.ts';

/** Replaces an insert; `real` executes the original insert. */
export type InsertReplacement = (insert: InsertBody, real: () => Promise<void>) => Promise<void>;

export interface KafkaSink {
  readonly sink: Sink;
  readonly log: EventLog;
  /** Attempted inserts, in order. */
  readonly inserts: InsertBody[];
  stop(): Promise<void>;
}

/** The tests use arbitrary start times, so the configuration accepts old runs. */
const defaults = { ...loadConfig({}).config, maxRunAgeDays: 3_000 };

/** Starts a sink of run events on a log and real stores. */
export async function startKafkaSink(
  parts: { readonly log: EventLog; readonly clickhouse: ClickHouse; readonly database: Database },
  { config = {}, around = (_insert, real) => real() }: { config?: Partial<Config>; around?: InsertReplacement } = {},
): Promise<KafkaSink> {
  const inserts: InsertBody[] = [];
  const clickhouse: ClickHouse = {
    ...parts.clickhouse,
    async insertBody(insert) {
      inserts.push(insert);
      await around(insert, () => parts.clickhouse.insertBody(insert));
    },
  };
  const { log, database } = parts;
  const sink = new Sink({
    log,
    clickhouse,
    database,
    config: { ...defaults, ...config },
    logger,
    onHoursMarked: () => {},
  });
  await sink.start([runEvents]);
  return {
    sink,
    log,
    inserts,
    async stop() {
      await log.close();
      sink.stop();
    },
  };
}

/** Returns a message with the run event, framed with the schema id of the registry. */
export function logged(log: EventLog, event: RunEvent): LogMessage {
  const value = framed(event);
  value.writeUInt32BE(log.schemaId(runEvents), 1);
  return { key: `${event.tenantId}:${event.traceId}`, value };
}
