import { join, resolve } from 'node:path';
import type { Config } from '../../infra/config/settings.ts';

/** Logs of the embedded engines in the data folder. */
export function engineLogs(config: Pick<Config, 'dataDir'>): {
  readonly ClickHouse: string;
  readonly Postgres: string;
} {
  const folder = resolve(config.dataDir);
  return { ClickHouse: join(folder, 'clickhouse', 'error.log'), Postgres: join(folder, 'postgres.log') };
}

/** What to do about a part that is down while runlake runs, by its name in `/ready`. Names hosts, never whole addresses. */
export function partRemedy(part: string, config: Config, pid: number | undefined): string {
  switch (part) {
    case 'clickhouse':
      return storeRemedy('ClickHouse', config.clickhouseUrl, config);
    case 'postgres':
      return storeRemedy('Postgres', config.databaseUrl, config);
    case 'jobs':
      if (config.redisUrl !== undefined) return `Check that Redis runs at ${hostOf(config.redisUrl)} and lets us in.`;
      return 'The job queue is in Postgres: it comes back with it.';
    case 'redis':
      return `Check that Redis runs at ${hostOf(config.redisUrl ?? '')} and lets us in.`;
    case 'kafka':
      return `Check that Kafka runs at ${config.kafkaBrokers} and lets us in.`;
    case 'schema registry':
    case 'schema_registry':
      return `Check that the schema registry runs at ${hostOf(config.schemaRegistryUrl ?? '')} and lets us in.`;
    default:
      return `It comes back with ClickHouse and Postgres. Where both are up, see the log of process ${pid ?? 'runlake'}.`;
  }
}

function storeRemedy(store: 'ClickHouse' | 'Postgres', address: string | undefined, config: Config): string {
  if (address !== undefined) {
    return `Check that the ${store} server at ${hostOf(address)} runs, can be reached and lets us in.`;
  }
  return (
    `It is embedded: runlake starts it again by itself when it ends; where that does not happen, start runlake again. ` +
    `Its log is ${engineLogs(config)[store]}.`
  );
}

function hostOf(address: string): string {
  return URL.canParse(address) ? new URL(address).host : 'the configured address';
}
