/**
 * A sink that stops at a step of its first insert of runs and reports that to its parent. It then waits to be killed, or for a
 * message to continue. Argument: JSON with the log's configuration, the stores' addresses and the step.
 */
import { openClickHouse } from '../../../../infra/clickhouse/client.ts';
import type { Config } from '../../../../infra/config/settings.ts';
import { openKafkaLog } from '../../../../infra/event-log/kafka/kafka-log.ts';
import { openDatabase } from '../../../../infra/postgres/pool.ts';
import { runEvents } from '../../../../schemas/topics.ts';
import { logger } from '../../../silent-logger.ts';
import { startKafkaSink } from './sink-on-kafka.ts';

export interface StallingSink {
  readonly config: Config;
  readonly clickhouseUrl: string;
  readonly databaseUrl: string;
  readonly stallsAt: 'before the insert' | 'after the insert' | 'before the insert, until it is resumed';
}

const { config, clickhouseUrl, databaseUrl, stallsAt } = JSON.parse(process.argv[2] ?? '') as StallingSink;
const log = await openKafkaLog({ config, topics: [runEvents], logger });
const clickhouse = openClickHouse({ url: clickhouseUrl, logger, timeoutMs: 30_000 });
const database = openDatabase({ url: databaseUrl, logger, timeoutMs: 30_000 });
let hasStalled = false;
await startKafkaSink(
  { log, clickhouse, database },
  {
    config,
    around: async ({ table }, real) => {
      // The sink that was resumed can get the partition of the next insert.
      if (table !== runEvents.table || hasStalled) return real();
      hasStalled = true;
      if (stallsAt === 'after the insert') await real();
      process.send?.('stalled');
      if (stallsAt !== 'before the insert, until it is resumed') await new Promise(() => {});
      await new Promise((resolve) => process.once('message', resolve));
      await real();
      process.send?.({ late: true });
    },
  },
);
