import { join, resolve } from 'node:path';
import type { Config } from '../../infra/config/settings.ts';

/** Returns the paths of the embedded engines' logs in the data folder. */
export function engineLogs(config: Pick<Config, 'dataDir'>): {
  readonly ClickHouse: string;
  readonly Postgres: string;
} {
  const folder = resolve(config.dataDir);
  return { ClickHouse: join(folder, 'clickhouse', 'error.log'), Postgres: join(folder, 'postgres.log') };
}

/**
 * Returns the remedy for a part that is down while Runlake runs, by its name in `/ready`. Contains host names, never
 * whole URLs.
 */
export function partRemedy(part: string, config: Config, pid: number | undefined): string {
  switch (part) {
    case 'clickhouse':
      return storeRemedy('ClickHouse', config.clickhouseUrl, config);
    case 'postgres':
      return storeRemedy('Postgres', config.databaseUrl, config);
    case 'jobs':
      if (config.redisUrl !== undefined)
        return `Check that Redis runs at ${formatHost(config.redisUrl)} and accepts Runlake's credentials.`;
      return 'The job queue is in Postgres and recovers with it.';
    case 'redis':
      return `Check that Redis runs at ${formatHost(config.redisUrl ?? '')} and accepts Runlake's credentials.`;
    case 'kafka':
      return `Check that Kafka runs at ${config.kafkaBrokers} and accepts Runlake's credentials.`;
    case 'schema registry':
    case 'schema_registry':
      return `Check that the schema registry runs at ${formatHost(config.schemaRegistryUrl ?? '')} and accepts Runlake's credentials.`;
    default:
      return `It recovers with ClickHouse and Postgres. If both are up, see the log of process ${pid ?? 'runlake'}.`;
  }
}

function storeRemedy(store: 'ClickHouse' | 'Postgres', address: string | undefined, config: Config): string {
  if (address !== undefined) {
    return `Check that the ${store} server at ${formatHost(address)} runs, is reachable and accepts Runlake's credentials.`;
  }
  return (
    `It is embedded: runlake restarts it when it exits. If it does not come up, restart runlake. ` +
    `Its log is ${engineLogs(config)[store]}.`
  );
}

function formatHost(address: string): string {
  return URL.canParse(address) ? new URL(address).host : 'the configured address';
}
