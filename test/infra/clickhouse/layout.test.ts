/**
 * Tests which layouts are refused, depending on what ClickHouse reports about itself. The native stack has no Keeper,
 * so the reports in this file are hard-coded; `two-shards.test.ts` reads those of real servers.
 */
import { expect, it } from 'vitest';
import type { ClickHouse, Query } from '../../../infra/clickhouse/clickhouse.ts';
import { readLayout, requireServersOfCluster, runOnEachShard } from '../../../infra/clickhouse/layout.ts';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';

interface Report {
  readonly engine?: string;
  readonly cluster?: string;
  readonly hasKeeper?: boolean;
  readonly macros?: readonly string[];
  /** Shard and replica of each server. */
  readonly nodes?: readonly (readonly [number, number])[];
  readonly weight?: number;
  readonly internal?: number;
}

const pair = [
  [1, 1],
  [1, 2],
] as const;
const four = [...pair, [2, 1], [2, 2]] as const;
const good: Report = { cluster: 'c', hasKeeper: true, macros: ['shard', 'replica'], nodes: four };

function readReportedLayout(report: Report) {
  const { engine = 'Atomic', cluster, hasKeeper = false, macros = [], nodes = [], weight = 1, internal = 1 } = report;
  const query = async <Row>({ name }: Query): Promise<Row[]> => {
    const rows =
      name === 'read-layout'
        ? [{ engine, has_keeper: hasKeeper ? 1 : 0, macros }]
        : nodes.map(([shard, replica]) => ({ shard, replica, address: 'h:9000', weight, internal, local: 0 }));
    return rows as Row[];
  };
  return readLayout({ cluster, query } satisfies Pick<ClickHouse, 'query' | 'cluster'>);
}

it.each<[string, Report, object]>([
  ['one server', {}, { kind: 'single' }],
  ['shards of replicas', good, { kind: 'cluster', cluster: 'c', shards: 2, replicas: 2, hasKeeper: true }],
  [
    'a replicated database',
    { engine: 'Replicated', cluster: 'c', nodes: pair },
    { kind: 'replicated', replicas: 2, isShared: false },
  ],
  [
    'ClickHouse Cloud',
    { engine: 'Shared', cluster: 'default', nodes: pair },
    { kind: 'replicated', replicas: 2, isShared: true },
  ],
])('%s has a layout', async (_, report, layout) => {
  expect(await readReportedLayout(report)).toEqual(layout);
});

it.each<[string, Report, RegExp]>([
  [
    'a replicated database without a cluster',
    { engine: 'Replicated' },
    /is replicated, but RUNLAKE_CLICKHOUSE_CLUSTER/,
  ],
  ['a shared database without a cluster', { engine: 'Shared' }, /is replicated, but RUNLAKE_CLICKHOUSE_CLUSTER/],
  ['a cluster that does not exist', { cluster: 'c' }, /no cluster named 'c'/],
  [
    'a replicated database over shards',
    { ...good, engine: 'Replicated' },
    /replicated and the cluster 'c' has 2 shards/,
  ],
  ['different weights', { ...good, weight: 2 }, /different weights/],
  ['replicas without a Keeper', { ...good, hasKeeper: false }, /2 replicas in a shard, but ClickHouse has no Keeper/],
  ['replicas without internal_replication', { ...good, internal: 0 }, /does not set internal_replication/],
  ['a Keeper without macros', { ...good, macros: ['shard'] }, /does not define the macros/],
])('%s is refused in one sentence', async (_, report, reason) => {
  const error = await readReportedLayout(report).then(
    () => undefined,
    (thrown: Error & { code: string }) => thrown,
  );
  expect(error).toMatchObject({ code: 'PART_UNUSABLE', message: expect.stringMatching(reason) });
  expect(error?.message.split('\n')).toHaveLength(1);
});

it('refuses shards with different numbers of replicas', async () => {
  const list = (nodes: readonly (readonly [number, number])[]) =>
    nodes.map(([shard, replica]) => ({
      query: async () =>
        nodes.map(([s, r]) => ({
          ...{ shard: s, replica: r, address: `h:${s}${r}`, weight: 1, internal: 1 },
          local: s === shard && r === replica ? 1 : 0,
        })),
    })) as unknown as readonly ClickHouse[];
  await requireServersOfCluster(list(four), 'c');
  await expect(requireServersOfCluster(list(four.slice(0, 3)), 'c')).rejects.toThrow(
    "The shards of the cluster 'c' have 1 to 2 replicas, and shards with fewer than 2 refuse inserts",
  );
});

it.each<[string, readonly number[], readonly string[] | undefined]>([
  ['no server', [], ['1/1', '2/1']],
  ['one replica of a shard', [0], ['1/2', '2/1']],
  ['all replicas of a shard', [2, 3], undefined],
])('a command runs on one replica of each shard while %s is down', async (_, down, expected) => {
  const executed: string[] = [];
  const away = runlakeError('CLICKHOUSE_UNAVAILABLE');
  const servers = four.map(([shard, replica], index) => ({
    query: async () => {
      if (down.includes(index)) throw away;
      return four.map(([s, r]) => ({
        ...{ shard: s, replica: r, address: `h:${s}${r}`, weight: 1, internal: 1 },
        local: s === shard && r === replica ? 1 : 0,
      }));
    },
    command: async () => void executed.push(`${shard}/${replica}`),
  }));
  const layout = { kind: 'cluster', cluster: 'c', shards: 2, replicas: 2, hasKeeper: true };
  const clickhouse = { servers, layout: async () => layout } as unknown as ClickHouse;
  const run = runOnEachShard(clickhouse, () => ({ name: 'test', sql: 'SELECT 1' }));
  if (expected === undefined) await expect(run).rejects.toBe(away);
  else await run.then(() => expect(executed.sort()).toEqual(expected));
});
