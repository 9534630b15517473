/** Runlake on two ClickHouse shards, one of which is killed under load, while the other keeps working. */
import { afterAll, expect, test, vi } from 'vitest';
import { type DedicatedShards, startDedicatedShards } from '../engines/own-shards.ts';
import { folderForSuite } from '../folders.ts';
import { checkKillUnderLoad } from './engine-killed-under-load.ts';
import { shareInstance } from './instance.ts';

vi.setConfig({ testTimeout: 300_000, hookTimeout: 300_000 });

const folder = folderForSuite();
let shards: DedicatedShards;

// Runs after the hook of `shareInstance` that stops Runlake: `afterAll` hooks run in reverse order.
afterAll(async () => {
  await shards?.stop();
});
const instance = shareInstance(async () => {
  shards = await startDedicatedShards(folder, 2);
  const { clickhouseUrl, clickhouseCluster } = shards.addresses;
  return { RUNLAKE_CLICKHOUSE_URL: clickhouseUrl, RUNLAKE_CLICKHOUSE_CLUSTER: clickhouseCluster };
});

test.each([1, 2])('kill -9 of shard %i under load: no run is lost, duplicated or counted twice', async (shard) => {
  const killed = shards.serverPid(shard);
  await checkKillUnderLoad(instance, () => process.kill(killed, 'SIGKILL'));
  expect(shards.serverPid(shard)).not.toBe(killed);
  const perShard = await instance.clickhouse(
    `SELECT count() FROM clusterAllReplicas('shards', currentDatabase(), runs_local) GROUP BY _shard_num FORMAT TSV`,
  );
  // Both shards store runs; otherwise killing one of them would prove nothing.
  expect(perShard.split('\n').filter((count) => Number(count) > 0)).toHaveLength(2);
});
