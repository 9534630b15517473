import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openWarehouse } from '../infra/clickhouse/client.ts';
import type { Query, Warehouse } from '../infra/clickhouse/warehouse.ts';
import { openDataFolder } from '../infra/embedded/data-folder.ts';
import { startEmbedded } from '../infra/embedded/start.ts';
import { migrate } from '../infra/migrations/migrate.ts';
import { type Database, openDatabase } from '../infra/postgres/pool.ts';
import { createLogger, type Logger } from '../infra/telemetry/logger.ts';

export interface BenchEngines {
  readonly warehouse: Warehouse;
  readonly database: Database;
  readonly logger: Logger;
}

/** What ClickHouse may not remember from one repetition to the next. */
const fresh = { use_query_condition_cache: 0 } as const;

/** Runs `work` on migrated engines of its own, in a folder that is removed afterwards; ClickHouse remembers no conditions. */
export async function withEngines<T>(work: (engines: BenchEngines) => Promise<T>): Promise<T> {
  const logger = createLogger('warn', 'bench');
  const path = mkdtempSync(join(tmpdir(), 'runlake-bench-'));
  const folder = await openDataFolder(path);
  const engines = await startEmbedded({ folder, needs: { clickhouse: true, database: true }, logger });
  const timeoutMs = 600_000;
  const warehouse = withoutCaches(openWarehouse({ url: String(engines.clickhouseUrl), logger, timeoutMs }));
  const database = openDatabase({ url: String(engines.databaseUrl), logger, timeoutMs });
  try {
    await migrate({ warehouse, database, logger });
    return await work({ warehouse, database, logger });
  } finally {
    await warehouse.close();
    await database.close();
    await engines.stop();
    await folder.close();
    rmSync(path, { recursive: true, force: true });
  }
}

function withoutCaches(inner: Warehouse): Warehouse {
  return {
    ...inner,
    query: <Row>(query: Query) => inner.query<Row>({ ...query, settings: { ...query.settings, ...fresh } }),
    queryText: (query) => inner.queryText({ ...query, settings: { ...query.settings, ...fresh } }),
  };
}
