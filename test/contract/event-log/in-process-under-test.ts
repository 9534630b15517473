import { onTestFinished } from 'vitest';
import type { ClickHouse } from '../../../infra/clickhouse/clickhouse.ts';
import { buildWirePrefix, prefixBytes } from '../../../infra/event-log/avro.ts';
import type { EventLog, LogBatch, LogRecord } from '../../../infra/event-log/event-log.ts';
import { openInProcessLog } from '../../../infra/event-log/in-process/in-process-log.ts';
import type { Database } from '../../../infra/postgres/pool.ts';
import { runEvents, topics } from '../../../schemas/topics.ts';
import { untilStored } from '../../engines/settling.ts';
import { freshStores } from '../../engines/stores.ts';
import { logger } from '../../silent-logger.ts';
import type { LogUnderTest } from './event-log-contract.ts';

/**
 * @param options.failingInserts number of inserts that fail before anything is stored.
 * @param options.override Returns functions that replace those of ClickHouse.
 */
export async function openInProcess({
  maxPendingBytes = 2 ** 20,
  failingInserts = 0,
  override = (_original: ClickHouse): Partial<ClickHouse> => ({}),
} = {}): Promise<LogUnderTest & { readonly clickhouse: ClickHouse; readonly database: Database }> {
  const stores = await freshStores();
  const { database } = stores;
  const original = { ...stores.clickhouse, ...override(stores.clickhouse) };
  let insertsToFail = failingInserts;
  const clickhouse: ClickHouse = {
    ...original,
    insertBody: async (insert) => {
      if (insertsToFail-- > 0) throw new Error('this insert was made to fail');
      await original.insertBody(insert);
    },
  };
  const openLog = () => openInProcessLog({ clickhouse, database, topics, partitions: 4, maxPendingBytes, logger });
  const log = await openLog();
  return {
    log,
    clickhouse,
    database,
    reopened: async () => openLog(),
    deadLetters: () => database.query('SELECT value, headers, reason, step FROM dead_letters ORDER BY id'),
    async close() {
      await log.close();
      await stores.close();
    },
  };
}

/** The same for one test, at whose end it is closed. */
export async function openForTest(options?: Parameters<typeof openInProcess>[0]) {
  const under = await openInProcess(options);
  onTestFinished(() => under.close());
  return under;
}

/** Returns the topic of each row in the table of the log. */
export async function listRows(clickhouse: ClickHouse): Promise<string[]> {
  const rows = await clickhouse.query<{ topic: string }>({ name: 'test', sql: 'SELECT topic FROM event_log' });
  return rows.map(({ topic }) => topic);
}

export const limits = { rows: 100, bytes: 100_000 };
export const message = (text: string) => ({
  key: 'key',
  value: Buffer.concat([buildWirePrefix(1), Buffer.from(text)]),
});
export const textOf = ({ value }: LogRecord) => value.toString('latin1', prefixBytes);

/** Consumes the events of a log and closes it. @returns the events. */
export async function storeRemaining(log: EventLog): Promise<LogRecord[]> {
  const stored: LogRecord[] = [];
  const handle = async ({ records }: LogBatch) => void stored.push(...records);
  await log.subscribe({ topic: runEvents, group: 'a', limits, handle });
  await untilStored(log, runEvents);
  await log.close();
  return stored;
}
