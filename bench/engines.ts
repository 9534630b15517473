import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ClickHouse, Query } from '../infra/clickhouse/clickhouse.ts';
import { openClickHouse } from '../infra/clickhouse/client.ts';
import { openDataFolder } from '../infra/embedded/data-folder.ts';
import { startEmbedded } from '../infra/embedded/start.ts';
import { migrate } from '../infra/migrations/migrate.ts';
import { type Database, openDatabase } from '../infra/postgres/pool.ts';
import { createLogger, type Logger } from '../infra/telemetry/logger.ts';

export interface BenchEngines {
  readonly clickhouse: ClickHouse;
  readonly database: Database;
  readonly logger: Logger;
}

/** Turns off caches of ClickHouse that would speed up repetitions. */
const fresh = { use_query_condition_cache: 0 } as const;

/** Runs `work` on separate migrated engines in a temporary folder, without ClickHouse's query condition cache. */
export async function withEngines<T>(work: (engines: BenchEngines) => Promise<T>): Promise<T> {
  const logger = createLogger('warn', 'bench');
  const path = mkdtempSync(join(tmpdir(), 'runlake-bench-'));
  const folder = await openDataFolder(path);
  const engines = await startEmbedded({ folder, needs: { clickhouse: true, database: true }, logger });
  const timeoutMs = 600_000;
  const clickhouse = withoutCaches(openClickHouse({ url: String(engines.clickhouseUrl), logger, timeoutMs }));
  const database = openDatabase({ url: String(engines.databaseUrl), logger, timeoutMs });
  try {
    await migrate({ clickhouse, database, logger });
    return await work({ clickhouse, database, logger });
  } finally {
    await clickhouse.close();
    await database.close();
    await engines.stop();
    await folder.close();
    rmSync(path, { recursive: true, force: true });
  }
}

function withoutCaches(inner: ClickHouse): ClickHouse {
  return {
    ...inner,
    query: <Row>(query: Query) => inner.query<Row>({ ...query, settings: { ...query.settings, ...fresh } }),
    queryText: (query) => inner.queryText({ ...query, settings: { ...query.settings, ...fresh } }),
  };
}
