import { randomBytes } from 'node:crypto';
import { inject } from 'vitest';
import { type ClickHouse, openClickHouse } from '../../infra/clickhouse/client.ts';
import { migrate } from '../../infra/migrations/migrate.ts';
import { type Database, openDatabase } from '../../infra/postgres/pool.ts';
import { logger } from '../silent-logger.ts';
import { askClickhouseEngine, askPostgresEngine, withDatabase } from './ask-engines.ts';
import { allocateKafkaTopics, allocateRedisDatabase } from './own-servers.ts';
import type { EngineAddresses } from './serve-addresses.ts';
import { copyTemplate } from './template.ts';

export interface FreshStores {
  /** Addresses of all servers, separated by commas, if there are shards. */
  readonly clickhouseUrl: string;
  readonly databaseUrl: string;
  /** Variables of the ClickHouse cluster, and of Kafka, registry and Redis if tests run on the native stack, with their own topics and queues. */
  readonly environment: Readonly<Record<string, string>>;
  /** Clients of both databases, open until `close`. */
  readonly clickhouse: ClickHouse;
  readonly database: Database;
  /** Closes the clients and drops both databases. */
  close(): Promise<void>;
  /** The same as `close`. */
  drop(): Promise<void>;
}

/**
 * Creates a ClickHouse database and a Postgres database on the shared engines of the test run, with the schema of this
 * release, or empty.
 */
export async function freshStores({
  migrated = true,
  on,
}: {
  readonly migrated?: boolean;
  /** Engines to use instead of those of the test run. */
  readonly on?: EngineAddresses;
} = {}): Promise<FreshStores> {
  const engines = on ?? (await engineAddresses());
  const name = `test_${randomBytes(8).toString('hex')}`;
  const clickhouseUrl = withDatabase(engines.clickhouseUrl, name);
  const databaseUrl = withDatabase(engines.databaseUrl, name);
  const cluster = engines.clickhouseCluster;
  const template = migrated ? engines.template : undefined;
  if (template === undefined)
    await runOnEngines(engines, `CREATE DATABASE ${name} ENGINE = Atomic`, `CREATE DATABASE ${name}`);
  else await copyTemplate(engines, template, name);

  const kafka = allocateKafkaTopics(engines, name);
  const redis = engines.redisUrl === undefined ? undefined : await allocateRedisDatabase(engines.redisUrl);
  const environment = {
    ...kafka.environment,
    ...(redis && { RUNLAKE_REDIS_URL: redis.url }),
    ...(cluster !== undefined && { RUNLAKE_CLICKHOUSE_CLUSTER: cluster, RUNLAKE_CLICKHOUSE_URL: clickhouseUrl }),
  };
  const timeoutMs = 30_000;
  const clickhouse = openClickHouse({ url: clickhouseUrl, cluster, logger, timeoutMs });
  const database = openDatabase({ url: databaseUrl, logger, timeoutMs });
  let open = true;
  const close = async () => {
    if (!open) return;
    open = false;
    await Promise.all([clickhouse.close(), database.close()]);
    await Promise.all([
      runOnEngines(engines, `DROP DATABASE ${name} SYNC`, `DROP DATABASE ${name} WITH (FORCE)`),
      kafka.clear(),
      redis?.clear(),
    ]);
  };
  try {
    if (migrated && template === undefined) await migrate({ clickhouse, database, logger });
  } catch (error) {
    await close();
    throw error;
  }
  const addresses = { clickhouseUrl, databaseUrl, environment };
  return { ...addresses, clickhouse, database, close, drop: close };
}

/** Returns the variable of the ClickHouse cluster, if there are shards. */
export function getClusterVariable({ environment }: FreshStores): Readonly<Record<string, string>> {
  return clusterVariable(environment.RUNLAKE_CLICKHOUSE_CLUSTER);
}

export function clusterVariable(cluster: string | undefined): Readonly<Record<string, string>> {
  return cluster === undefined ? {} : { RUNLAKE_CLICKHOUSE_CLUSTER: cluster };
}

async function engineAddresses(): Promise<EngineAddresses> {
  const answer = await fetch(inject('enginesUrl'));
  if (!answer.ok) throw new Error(await answer.text());
  return (await answer.json()) as EngineAddresses;
}

async function runOnEngines(engines: EngineAddresses, clickhouseSql: string, postgresSql: string): Promise<void> {
  await Promise.all([
    askClickhouseEngine(engines.clickhouseUrl, clickhouseSql),
    askPostgresEngine(engines.databaseUrl, postgresSql),
  ]);
}
