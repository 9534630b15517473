import { isRunlakeError, runlakeError } from '../errors/runlake-error.ts';
import type { ClickHouse, Command } from './clickhouse.ts';
import type { Layout } from './settings.ts';

/** A server of the cluster as described in `system.clusters`. */
interface ClusterNode {
  readonly shard: number;
  readonly replica: number;
  readonly address: string;
  readonly weight: number;
  readonly isInternal: boolean;
  /** Whether this server returned the row. */
  readonly isLocal: boolean;
}

/** Returns the name of the local table in which a server of a cluster stores its part of the rows. */
export function toLocalTable(table: string): string {
  return `${table}_local`;
}

type LayoutSource = Pick<ClickHouse, 'query' | 'cluster'>;

/**
 * Reads the layout from the server.
 *
 * @throws PART_UNUSABLE if the server does not match RUNLAKE_CLICKHOUSE_CLUSTER; errors of ClickHouse.
 */
export async function readLayout(clickhouse: LayoutSource): Promise<Layout> {
  const { cluster } = clickhouse;
  const [server] = await clickhouse.query<{ engine: string; has_keeper: number; macros: string[] }>({
    name: 'read-layout',
    sql: `SELECT (SELECT engine FROM system.databases WHERE name = currentDatabase()) AS engine,
      (SELECT count() FROM system.tables WHERE database = 'system' AND name = 'zookeeper') AS has_keeper,
      (SELECT groupArray(macro) FROM system.macros) AS macros`,
  });
  const { engine, has_keeper: hasKeeper = 0, macros = [] } = server ?? {};
  const isReplicated = engine === 'Replicated' || engine === 'Shared';
  if (cluster === undefined) {
    if (!isReplicated) return { kind: 'single' };
    throw createUnusableError(
      'The database of ClickHouse is replicated, but RUNLAKE_CLICKHOUSE_CLUSTER is not set, so each replica would store other rows',
      'Set RUNLAKE_CLICKHOUSE_CLUSTER to the name of its cluster in system.clusters, or use a database with the engine Atomic.',
    );
  }
  const nodes = await readNodes(clickhouse, cluster);
  const shards = Math.max(0, ...nodes.map(({ shard }) => shard));
  const replicas = Math.max(0, ...nodes.map(({ replica }) => replica));
  if (shards === 0) {
    throw createUnusableError(
      `ClickHouse has no cluster named '${cluster}'`,
      'Set RUNLAKE_CLICKHOUSE_CLUSTER to a cluster of remote_servers; system.clusters lists them.',
    );
  }
  if (isReplicated && shards > 1) {
    throw createUnusableError(
      `The database of ClickHouse is replicated and the cluster '${cluster}' has ${shards} shards`,
      'Use a database with the engine Atomic on each server.',
    );
  }
  if (isReplicated) return { kind: 'replicated', replicas, isShared: engine === 'Shared' };
  if (nodes.some(({ weight }) => weight !== 1)) {
    throw createUnusableError(
      `The shards of the cluster '${cluster}' have different weights`,
      'Give each shard the weight 1.',
    );
  }
  if (replicas > 1 && hasKeeper === 0) {
    throw createUnusableError(
      `The cluster '${cluster}' has ${replicas} replicas in a shard, but ClickHouse has no Keeper, so replicas would store other rows`,
      'Configure zookeeper or keeper on every server, or use one replica in each shard.',
    );
  }
  if (replicas > 1 && nodes.some(({ isInternal }) => !isInternal)) {
    throw createUnusableError(
      `The cluster '${cluster}' does not set internal_replication, so each row would be inserted once per replica`,
      'Set internal_replication to true for each shard of remote_servers.',
    );
  }
  if (hasKeeper !== 0 && !(macros.includes('shard') && macros.includes('replica'))) {
    throw createUnusableError(
      "ClickHouse has a Keeper, but does not define the macros 'shard' and 'replica', which name the replicated tables",
      'Define both under <macros> on every server.',
    );
  }
  return { kind: 'cluster', cluster, shards, replicas, hasKeeper: hasKeeper !== 0 };
}

/**
 * Checks that the configured servers are those of the cluster, and that its shards have the same number of replicas: an
 * insert waits for as many replicas of each shard (`buildLayoutSettings`).
 *
 * @throws PART_UNUSABLE if a server of the cluster is missing in RUNLAKE_CLICKHOUSE_URL or occurs twice, or if a shard
 *   has fewer replicas than another; errors of the first server that does not respond.
 */
export async function requireServersOfCluster(servers: readonly ClickHouse[], cluster: string): Promise<void> {
  const nodes = new Map<string, ClusterNode>();
  const found = new Set<string>();
  for (const server of servers) {
    for (const node of await readNodes(server, cluster)) {
      const key = `${node.shard}/${node.replica}`;
      nodes.set(key, node);
      if (!node.isLocal) continue;
      if (found.has(key)) {
        throw createUnusableError(
          `RUNLAKE_CLICKHOUSE_URL names the server ${node.address} of the cluster '${cluster}' more than once`,
          'List each server of the cluster once; a load balancer in front of several servers is not supported.',
        );
      }
      found.add(key);
    }
  }
  const replicas = new Map<number, number>();
  for (const { shard } of nodes.values()) replicas.set(shard, (replicas.get(shard) ?? 0) + 1);
  const [fewest, most] = [Math.min(...replicas.values()), Math.max(...replicas.values())];
  if (fewest < most) {
    throw createUnusableError(
      `The shards of the cluster '${cluster}' have ${fewest} to ${most} replicas, and shards with fewer than ${most} refuse inserts`,
      'Give each shard in remote_servers the same number of replicas.',
    );
  }
  for (const [key, { shard, replica, address }] of nodes) {
    if (found.has(key)) continue;
    throw createUnusableError(
      `RUNLAKE_CLICKHOUSE_URL lacks a server of the cluster '${cluster}': replica ${replica} of shard ${shard}, ${address}`,
      'List the HTTP address of every server of the cluster, separated by commas.',
    );
  }
}

/**
 * Runs a command on one server of each shard, on all shards at the same time. Replication transfers the changes to the
 * other replicas.
 *
 * @param buildCommand receives a function that returns the name of a shard's local table, and the index of the shard.
 * @throws errors of ClickHouse. In that case, some shards may already have run their command.
 */
export async function runOnEachShard(
  clickhouse: ClickHouse,
  buildCommand: (stored: (table: string) => string, shard: number) => Command,
): Promise<void> {
  const layout = await clickhouse.layout();
  if (layout.kind !== 'cluster') return clickhouse.command(buildCommand((table) => table, 0));
  const shards = await groupRespondingServers(clickhouse.servers, layout, (server) => server);
  await Promise.all(shards.map((replicas, shard) => runOnFirstReplica(replicas, buildCommand(toLocalTable, shard))));
}

/**
 * Groups the servers that respond by shard.
 *
 * @throws the error of a server that does not respond if a shard has no other.
 */
export async function groupRespondingServers<Server>(
  servers: readonly Server[],
  { cluster, shards }: Extract<Layout, { kind: 'cluster' }>,
  toClient: (server: Server) => Pick<ClickHouse, 'query'>,
): Promise<Server[][]> {
  const results = await Promise.allSettled(servers.map((server) => readNodes(toClient(server), cluster)));
  const grouped: Server[][] = Array.from({ length: shards }, () => []);
  for (const [index, result] of results.entries()) {
    const local = result.status === 'fulfilled' ? result.value.find(({ isLocal }) => isLocal) : undefined;
    if (local !== undefined) grouped[local.shard - 1]?.push(servers[index] as Server);
  }
  if (grouped.every((replicas) => replicas.length > 0)) return grouped;
  const failure = results.find((result) => result.status === 'rejected');
  throw (
    failure?.reason ??
    createUnusableError(
      `RUNLAKE_CLICKHOUSE_URL lacks all servers of a shard of the cluster '${cluster}'`,
      'List the HTTP address of every server of the cluster, separated by commas.',
    )
  );
}

/** Sends the command to the first replica that executes it. */
async function runOnFirstReplica([replica, ...others]: readonly ClickHouse[], command: Command): Promise<void> {
  try {
    await replica?.command(command);
  } catch (error) {
    if (others.length === 0 || !isRunlakeError(error) || error.code !== 'CLICKHOUSE_UNAVAILABLE') throw error;
    await runOnFirstReplica(others, command);
  }
}

async function readNodes(server: Pick<ClickHouse, 'query'>, cluster: string): Promise<ClusterNode[]> {
  const rows = await server.query<Omit<ClusterNode, 'isLocal' | 'isInternal'> & { local: number; internal: number }>({
    name: 'read-cluster',
    sql: `SELECT shard_num AS shard, replica_num AS replica, concat(host_name, ':', toString(port)) AS address,
      shard_weight AS weight, internal_replication AS internal, is_local AS local
      FROM system.clusters WHERE cluster = {cluster:String} ORDER BY shard, replica`,
    params: { cluster },
  });
  return rows.map(({ local, internal, ...node }) => ({ ...node, isLocal: local === 1, isInternal: internal === 1 }));
}

function createUnusableError(reason: string, remedy: string): Error {
  return runlakeError('PART_UNUSABLE', { reason, remedy });
}
