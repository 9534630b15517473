import { describe, expect, it } from 'vitest';
import { formatUsageJson } from '../../../api/main/usage-formats.ts';
import { runInTimeSlices } from '../../../infra/timeouts/time-slices.ts';
import { generateUsageRows, readGranularUsage } from '../../../pipelines/usage/report.ts';
import { readTokenUsage } from '../../../pipelines/usage/token-usage.ts';
import { freshStores } from '../../engines/stores.ts';
import { forSuite } from '../../for-suite.ts';
import { uuidOf } from './trace-rows.ts';

const stores = forSuite(() => freshStores());

describe('a report of very many users', () => {
  const [workspace, other] = [uuidOf('crowded'), uuidOf('very crowded')];
  const request = (workspaceId: string, days: number) => ({
    organizationId: workspaceId,
    workspaceIds: [workspaceId],
    range: { startMs: Date.UTC(2024, 0, 1), endMs: Date.UTC(2024, 0, 1 + days) },
    groupBy: 'user' as const,
  });
  /** Stores a trace of each of the users on each of the days. */
  const fill = (workspaceId: string, users: number, days: number) =>
    stores.clickhouse.command({
      name: 'test',
      sql: `INSERT INTO usage_daily (tenant_id, dimension, day, ids, traces, roll_up)
        SELECT '${workspaceId}', 'user', toDate('2024-01-01') + number, arrayMap(i -> reinterpretAsUUID(sipHash128(i)), range(${users})),
          arrayWithConstant(${users}, toUInt64(1)), 1 FROM numbers(${days})`,
      profile: 'bulk',
    });

  it('has at most 500,000 rows, which are formatted without blocking the process', async () => {
    await fill(workspace, 2_000, 400);
    await fill(other, 20_000, 30);
    await expect(readGranularUsage(stores, request(other, 30))).rejects.toMatchObject({
      code: 'BAD_REQUEST',
      parameters: { reason: expect.stringContaining('more than 500,000 rows') },
    });
    let turns = 0;
    const watch = setInterval(() => turns++, 0);
    const usage = await readGranularUsage(stores, request(other, 20));
    const startedAtTurn = turns;
    const { usage: rows } = JSON.parse((await runInTimeSlices(formatUsageJson(usage))).toString());
    clearInterval(watch);
    expect(rows).toHaveLength(400_000);
    expect(startedAtTurn).toBeGreaterThan(2);
    expect(turns - startedAtTurn).toBeGreaterThan(2);
    // The days of a bucket are added up by ClickHouse, and count once.
    const year = await readGranularUsage(stores, request(workspace, 400));
    expect([year.stride.days, [...generateUsageRows(year)].length]).toEqual([365, 4_000]);
  });

  it('counts a user once in a bucket, also of several workspaces and parts of days', async () => {
    const workspaceIds = [1, 2, 3, 4].map((number) => uuidOf(`shared ${number}`));
    for (const id of workspaceIds) await fill(id, 1_000, 31);
    const { range } = request(workspace, 31);
    const shared = {
      ...request(workspace, 31),
      workspaceIds,
      range: { startMs: range.startMs + 3_600_000, endMs: range.endMs },
    };
    expect([...generateUsageRows(await readGranularUsage(stores, shared, 30_000))]).toHaveLength(30_000);
    await expect(readGranularUsage(stores, shared, 29_999)).rejects.toThrow('more than 29,999 rows');
  });

  it('with tokens has at most 200,000 rows', async () => {
    const tokens = (days: number) => readTokenUsage(stores, request(other, days));
    await expect(tokens(11)).rejects.toThrow('more than 200,000 rows');
    expect((await tokens(2)).rows).toHaveLength(40_000);
  });
});
