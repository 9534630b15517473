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

type ServerName = 'kafka' | 'registry' | 'clickhouse' | 'postgres' | 'redis';

/** @param options where a disk size is given, each that has data gets a disk of that size, if this user may. */
export async function ownServers(options: { readonly diskMiB?: number } = {}): Promise<OwnServers> {
  const { kafka, registry, clickhouse, postgres, redis, remove } = await startOwn(
    ['kafka', 'registry', 'clickhouse', 'postgres', 'redis'],
    options,
  );
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

/** Only these; none is left where one cannot be had. */
export async function startOwn<Name extends ServerName>(
  names: readonly Name[],
  options: { readonly diskMiB?: number } = {},
): Promise<Readonly<Record<Name, OwnServer>> & { remove(): Promise<void> }> {
  const started = await Promise.allSettled(names.map((name) => ownServer(name, options)));
  const servers = started.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []));
  const remove = async () => void (await Promise.all(servers.map((server) => server.remove())));
  const failed = started.find((each) => each.status === 'rejected');
  if (failed) {
    await remove();
    throw failed.reason;
  }
  const byName = Object.fromEntries(names.map((name, place) => [name, servers[place]]));
  return { ...(byName as Record<Name, OwnServer>), remove };
}
