/**
 * Template databases with this release's schema: the migrations create them once for a test run. Each test that needs
 * its own databases copies them, which takes only a fraction of the requests of the migrations.
 */
import { randomBytes } from 'node:crypto';
import { openClickHouse } from '../../infra/clickhouse/client.ts';
import { migrate } from '../../infra/migrations/migrate.ts';
import { openDatabase } from '../../infra/postgres/pool.ts';
import { logger } from '../silent-logger.ts';
import { askClickhouseEngine, askPostgresEngine, withDatabase } from './ask-engines.ts';
import type { EngineAddresses } from './serve-addresses.ts';

type Engines = Pick<EngineAddresses, 'clickhouseUrl' | 'clickhouseCluster' | 'databaseUrl'>;

/**
 * Creates the template databases.
 *
 * @returns the name that both have.
 */
export async function makeTemplate(engines: Engines): Promise<string> {
  const name = `template_${randomBytes(8).toString('hex')}`;
  await Promise.all([
    askClickhouseEngine(engines.clickhouseUrl, `CREATE DATABASE ${name} ENGINE = Atomic`),
    askPostgresEngine(engines.databaseUrl, `CREATE DATABASE ${name}`),
  ]);
  const timeoutMs = 60_000;
  const clickhouse = openClickHouse({
    url: withDatabase(engines.clickhouseUrl, name),
    cluster: engines.clickhouseCluster,
    logger,
    timeoutMs,
  });
  const database = openDatabase({ url: withDatabase(engines.databaseUrl, name), logger, timeoutMs });
  try {
    await migrate({ clickhouse, database, logger });
  } finally {
    await Promise.all([clickhouse.close(), database.close()]);
  }
  // Postgres refuses to copy a database that has connections.
  await askPostgresEngine(engines.databaseUrl, `ALTER DATABASE ${name} ALLOW_CONNECTIONS false`);
  return name;
}

/** Creates both databases with the name `name`. */
export async function copyTemplate(engines: Engines, template: string, name: string): Promise<void> {
  await Promise.all([
    askPostgresEngine(engines.databaseUrl, `CREATE DATABASE ${name} TEMPLATE ${template}`),
    copyInClickhouse(engines.clickhouseUrl, template, name),
  ]);
}

export async function dropTemplate(engines: Engines, template: string): Promise<void> {
  await Promise.all([
    askClickhouseEngine(engines.clickhouseUrl, `DROP DATABASE ${template} SYNC`),
    askPostgresEngine(engines.databaseUrl, `DROP DATABASE ${template}`),
  ]);
}

async function copyInClickhouse(address: string, template: string, name: string): Promise<void> {
  const ask = (sql: string) => askClickhouseEngine(address, sql);
  const listed = `SELECT create_table_query AS sql FROM system.tables WHERE database = '${template}' FORMAT JSONEachRow`;
  const [answer] = await Promise.all([ask(listed), ask(`CREATE DATABASE ${name} ENGINE = Atomic`)]);
  const statements = answer
    .trim()
    .split('\n')
    .map((line) => (JSON.parse(line) as { sql: string }).sql.replaceAll(template, name));
  const isView = (sql: string) => sql.startsWith('CREATE MATERIALIZED VIEW');
  await Promise.all(statements.filter((sql) => !isView(sql)).map(ask));
  await Promise.all(statements.filter(isView).map(ask));
  await ask(`INSERT INTO ${name}.runlake_migrations SELECT * FROM ${template}.runlake_migrations`);
}
