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
import { withDatabase } from '../test/engines/ask-engines.ts';
import { startDedicatedShards } from '../test/engines/own-shards.ts';
import { atEnd, started } from './started.ts';

export interface BenchEngines {
  readonly clickhouse: ClickHouse;
  readonly database: Database;
  readonly logger: Logger;
}

/** Turns off caches of ClickHouse that would speed up repetitions. */
const fresh = { use_query_condition_cache: 0 } as const;

/**
 * Runs `work` on separate migrated engines in a temporary folder, without ClickHouse's query condition cache. They run
 * until the bench ends.
 */
export function withEngines<T>(work: (engines: BenchEngines) => Promise<T>): Promise<T> {
  return withEnginesAndShards((engines) => work(engines), false);
}

/** As {@link withEngines}, and with a cluster of two ClickHouse servers that has a Postgres database of its own. */
export function withTwoShards<T>(work: (one: BenchEngines, two: BenchEngines) => Promise<T>): Promise<T> {
  return withEnginesAndShards((one, two) => work(one, two as BenchEngines), true);
}

async function withEnginesAndShards<T>(
  work: (one: BenchEngines, two: BenchEngines | undefined) => Promise<T>,
  hasShards: boolean,
): Promise<T> {
  const logger = createLogger('warn', 'bench');
  const path = mkdtempSync(join(tmpdir(), 'runlake-bench-'));
  atEnd(() => rmSync(path, { recursive: true, force: true }));
  const folder = await started(openDataFolder(path), (opened) => opened.close());
  const engines = await started(
    startEmbedded({ folder, needs: { clickhouse: true, database: true }, logger }),
    (running) => running.stop(),
  );
  const shards = hasShards
    ? await started(startDedicatedShards(join(path, 'shards'), 2), (running) => running.stop())
    : undefined;
  const open = async (clickhouseUrl: string, databaseUrl: string, cluster?: string): Promise<BenchEngines> => {
    const timeoutMs = 600_000;
    const clickhouse = withoutCaches(openClickHouse({ url: clickhouseUrl, cluster, logger, timeoutMs }));
    const database = openDatabase({ url: databaseUrl, logger, timeoutMs });
    atEnd(() => Promise.all([clickhouse.close(), database.close()]));
    const one = { clickhouse, database, logger };
    await migrate(one);
    return one;
  };
  const one = await open(String(engines.clickhouseUrl), String(engines.databaseUrl));
  if (shards === undefined) return work(one, undefined);
  await one.database.execute('CREATE DATABASE shards');
  const { clickhouseUrl, clickhouseCluster } = shards.addresses;
  const two = await open(clickhouseUrl, withDatabase(String(engines.databaseUrl), 'shards'), clickhouseCluster);
  return work(one, two);
}

function withoutCaches(inner: ClickHouse): ClickHouse {
  return {
    ...inner,
    query: <Row>(query: Query) => inner.query<Row>({ ...query, settings: { ...query.settings, ...fresh } }),
    queryText: (query) => inner.queryText({ ...query, settings: { ...query.settings, ...fresh } }),
  };
}
