import type { ClickHouse } from '../clickhouse/clickhouse.ts';
import type { EventLog } from './event-log.ts';

/**
 * Returns a client whose queries see the events that their organisation has published in this process before, if the log
 * can wait for them: see {@link EventLog.whenStored}.
 */
export function readOwnWrites(clickhouse: ClickHouse, log: Pick<EventLog, 'whenStored'>): ClickHouse {
  return {
    ...clickhouse,
    query: async (request) => {
      await log.whenStored();
      return clickhouse.query(request);
    },
    queryText: async (request) => {
      await log.whenStored();
      return clickhouse.queryText(request);
    },
    queryToFile: async (request) => {
      await log.whenStored();
      return clickhouse.queryToFile(request);
    },
  };
}
