/** Reads and applies the migrations of all ClickHouse servers. */
import type { ClickHouse } from '../clickhouse/clickhouse.ts';
import { readLayout, requireServersOfCluster } from '../clickhouse/layout.ts';
import type { Layout } from '../clickhouse/settings.ts';
import { isRunlakeError, runlakeError } from '../errors/runlake-error.ts';
import { type AppliedClickHouse, applyClickHouse, readAppliedClickHouse } from './apply-clickhouse.ts';
import type { Migration } from './load.ts';
import { findPendingMigrations } from './pending.ts';

interface ServerMigrations {
  readonly server: ClickHouse;
  readonly applied: readonly AppliedClickHouse[];
  readonly pending: ReadonlySet<Migration>;
}

export interface PendingClickHouse {
  /** Migrations that are missing on at least one server, in order. */
  readonly migrations: readonly Migration[];
  readonly servers: readonly ServerMigrations[];
  /** Error of a server that did not respond; undefined if all servers responded. */
  readonly failure: unknown;
}

/**
 * Returns the missing migrations of each server. Omits servers that do not respond, unless no server responds.
 *
 * @throws STORE_NEWER, MIGRATION_CHANGED; the errors of the servers if all fail.
 */
export async function readPendingClickHouse(
  clickhouse: ClickHouse,
  known: readonly Migration[],
): Promise<PendingClickHouse> {
  const results = await Promise.allSettled(
    clickhouse.servers.map(async (server) => ({ server, applied: await readAppliedClickHouse(server) })),
  );
  const found = results.flatMap((answer) => (answer.status === 'fulfilled' ? [answer.value] : []));
  const failure = results.find((answer) => answer.status === 'rejected')?.reason as unknown;
  if (found.length === 0) throw failure;
  const servers = found.map(({ server, applied }) => ({
    server,
    applied,
    pending: new Set(findPendingMigrations('clickhouse', known, applied)),
  }));
  const migrations = known.filter((migration) => servers.some(({ pending }) => pending.has(migration)));
  return { migrations, servers, failure };
}

/**
 * Applies the migrations to each server on which they are missing.
 *
 * @throws MIGRATION_FAILED, MIGRATION_CHANGED; PART_UNUSABLE if a server does not respond, or if the servers do not
 *   match RUNLAKE_CLICKHOUSE_CLUSTER.
 */
export async function applyToServers(
  { migrations, servers, failure }: PendingClickHouse,
  clickhouse: ClickHouse,
  timeoutMs: number,
  onApplied: (migration: Migration) => void,
): Promise<void> {
  if (migrations.length === 0) return;
  if (failure !== undefined) throw toUnreachableServerError(failure);
  const layout = await readLayout(clickhouse);
  const shards = requireSameLayout(layout, servers);
  const migratedServers = layout.kind === 'replicated' ? servers.slice(0, 1) : servers;
  if (layout.kind === 'cluster') {
    await requireServersOfCluster(clickhouse.servers, layout.cluster).catch((error: unknown) => {
      throw toUnreachableServerError(error);
    });
  }
  for (const migration of migrations) {
    for (const { server, pending } of migratedServers) {
      if (pending.has(migration)) await applyClickHouse(server, migration, { layout, shards, timeoutMs });
    }
    onApplied(migration);
  }
}

/**
 * Checks that the tables were made for the configured cluster. With another one, roll-ups would count some shards under
 * the wrong number.
 *
 * @throws PART_UNUSABLE if the applied migrations were made for another layout; errors of ClickHouse.
 */
export async function checkLayout({ servers }: PendingClickHouse, clickhouse: ClickHouse): Promise<void> {
  if (servers.every(({ applied }) => applied.length === 0)) return;
  requireSameLayout(await readLayout(clickhouse), servers);
}

/**
 * Returns the number of shards for the sharding keys.
 *
 * @throws PART_UNUSABLE if the applied migrations were made for another layout.
 */
function requireSameLayout(layout: Layout, servers: readonly ServerMigrations[]): number {
  const recorded = servers.flatMap(({ applied }) => applied.map(({ shards }) => shards));
  const configuredShards = layout.kind === 'cluster' ? layout.shards : 0;
  const [first = configuredShards] = recorded;
  if (recorded.some((shards) => shards !== first)) {
    throw runlakeError('PART_UNUSABLE', {
      reason: 'The ClickHouse servers have tables that were made for different numbers of shards',
      remedy: 'RUNLAKE_CLICKHOUSE_URL must list the servers of one cluster only.',
    });
  }
  if ((first === 0) !== (configuredShards === 0) || configuredShards < first) {
    throw runlakeError('PART_UNUSABLE', {
      reason: `The tables of ClickHouse were made for ${describeShards(first)}, but the configuration has ${describeShards(configuredShards)}`,
      remedy:
        'Use the former RUNLAKE_CLICKHOUSE_CLUSTER and RUNLAKE_CLICKHOUSE_URL; tables cannot be moved between them.',
    });
  }
  return first;
}

function describeShards(shards: number): string {
  return shards === 0 ? 'no cluster of shards' : `a cluster of ${shards} ${shards === 1 ? 'shard' : 'shards'}`;
}

/**
 * Converts the error of a server that does not respond. The error stops the migration, because all servers must have
 * the same tables.
 */
function toUnreachableServerError(cause: unknown): unknown {
  if (!isRunlakeError(cause) || cause.code !== 'CLICKHOUSE_UNAVAILABLE') return cause;
  return runlakeError(
    'PART_UNUSABLE',
    {
      reason: 'Migrations need every ClickHouse server of the cluster, and one does not respond',
      remedy: 'Start the server, then run the migration again; `runlake doctor` names the server.',
    },
    { cause },
  );
}
