import { askClickhouse } from '../infra/embedded/processes.ts';
import { type OwnServer, ownServer } from './own-server.ts';
import type { Servers } from './pipeline.ts';

/** One of each server, for a test file alone. */
export interface OwnServers {
  readonly kafka: OwnServer;
  readonly registry: OwnServer;
  readonly clickhouse: OwnServer;
  readonly postgres: OwnServer;
  readonly redis: OwnServer;
  readonly addresses: Servers;
  /** Past all proxies. */
  clickhouseRows(sql: string): Promise<string>;
  remove(): Promise<void>;
}

const names = ['kafka', 'registry', 'clickhouse', 'postgres', 'redis'] as const;

/** @param options where a disk size is given, each that has data gets a disk of that size, if this user may. */
export async function ownServers(options: { readonly diskMiB?: number } = {}): Promise<OwnServers> {
  const started = await Promise.allSettled(names.map((name) => ownServer(name, options)));
  const servers = started.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []));
  const remove = async () => void (await Promise.all(servers.map((server) => server.remove())));
  const failed = started.find((each) => each.status === 'rejected');
  if (failed) {
    await remove();
    throw failed.reason;
  }
  const [kafka, registry, clickhouse, postgres, redis] = servers as [
    OwnServer,
    OwnServer,
    OwnServer,
    OwnServer,
    OwnServer,
  ];
  const addresses: Servers = {
    kafkaBrokers: kafka.values.brokers ?? '',
    schemaRegistryUrl: registry.values.url ?? '',
    clickhouseUrl: clickhouse.values.url ?? '',
    databaseUrl: postgres.values.url ?? '',
    redisUrl: redis.values.url ?? '',
  };
  const clickhouseRows = (sql: string) => askClickhouse(addresses.clickhouseUrl, sql);
  return { kafka, registry, clickhouse, postgres, redis, addresses, clickhouseRows, remove };
}
