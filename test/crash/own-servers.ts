import { askClickhouse } from '../infra/embedded/processes.ts';
import { type DedicatedServer, startDedicatedServer } from './own-server.ts';
import type { Servers } from './pipeline.ts';

/** One server of each kind, for one test file. */
export interface DedicatedServers {
  readonly kafka: DedicatedServer;
  readonly registry: DedicatedServer;
  readonly clickhouse: DedicatedServer;
  readonly postgres: DedicatedServer;
  readonly redis: DedicatedServer;
  readonly addresses: Servers;
  /** Queries ClickHouse directly, without a proxy. */
  clickhouseRows(sql: string): Promise<string>;
  remove(): Promise<void>;
}

type ServerName = 'kafka' | 'registry' | 'clickhouse' | 'postgres' | 'redis';

/**
 * Starts one server of each kind.
 *
 * @param options with a disk size, each server gets a disk of that size, if this user is allowed to mount one.
 */
export async function startDedicatedServers(options: { readonly diskMiB?: number } = {}): Promise<DedicatedServers> {
  const { kafka, registry, clickhouse, postgres, redis, remove } = await startServersByName(
    ['kafka', 'registry', 'clickhouse', 'postgres', 'redis'],
    options,
  );
  const addresses: Servers = {
    kafkaBrokers: kafka.values.brokers ?? '',
    schemaRegistryUrl: registry.values.url ?? '',
    clickhouseUrl: clickhouse.values.url ?? '',
    clickhouseCluster: clickhouse.values.cluster,
    databaseUrl: postgres.values.url ?? '',
    redisUrl: redis.values.url ?? '',
  };
  const clickhouseRows = (sql: string) => askClickhouse(addresses.clickhouseUrl, sql);
  return { kafka, registry, clickhouse, postgres, redis, addresses, clickhouseRows, remove };
}

/** Starts only these servers; removes all of them if one does not start. */
export async function startServersByName<Name extends ServerName>(
  names: readonly Name[],
  options: { readonly diskMiB?: number } = {},
): Promise<Readonly<Record<Name, DedicatedServer>> & { remove(): Promise<void> }> {
  const started = await Promise.allSettled(names.map((name) => startDedicatedServer(name, options)));
  const servers = started.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []));
  const remove = async () => void (await Promise.all(servers.map((server) => server.remove())));
  const failed = started.find((each) => each.status === 'rejected');
  if (failed) {
    await remove();
    throw failed.reason;
  }
  const byName = Object.fromEntries(names.map((name, index) => [name, servers[index]]));
  return { ...(byName as Record<Name, DedicatedServer>), remove };
}
