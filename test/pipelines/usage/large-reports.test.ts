import { describe, expect, it } from 'vitest';
import { formatCsvOfKind, formatJsonOfKind, formatUsageJson } from '../../../api/main/usage-formats.ts';
import type { Services } from '../../../api/server/services.ts';
import { runInTimeSlices } from '../../../infra/timeouts/time-slices.ts';
import type { Caller } from '../../../pipelines/tenants/caller.ts';
import { generateUsageRows, readGranularUsage } from '../../../pipelines/usage/report.ts';
import { readTokenUsage } from '../../../pipelines/usage/token-usage.ts';
import { freshStores } from '../../engines/stores.ts';
import { forSuite } from '../../for-suite.ts';
import { deriveUuid } from '../runs/run-events.ts';

const stores = forSuite(() => freshStores());

/** Runs `work`, and returns the longest time in which no timer ran, as a share of the whole. */
async function watchTurns<Result>(work: () => Promise<Result>) {
  const startedAtMs = performance.now();
  let lastMs = startedAtMs;
  let maxGapMs = 0;
  const note = () => {
    const nowMs = performance.now();
    maxGapMs = Math.max(maxGapMs, nowMs - lastMs);
    lastMs = nowMs;
  };
  const watch = setInterval(note, 0);
  const result = await work();
  clearInterval(watch);
  note();
  return { result, maxGapShare: maxGapMs / (lastMs - startedAtMs) };
}

describe('a report of very many users', () => {
  const [workspace, other] = [deriveUuid('crowded'), deriveUuid('very crowded')];
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
    const workspaceIds = [1, 2, 3, 4].map((number) => deriveUuid(`shared ${number}`));
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

  it('of all kinds and formats is read and formatted in time slices', async () => {
    await stores.database.execute(`INSERT INTO organizations (id, display_name) VALUES ($1, 'crowd')`, [other]);
    await stores.database.execute(
      `INSERT INTO workspaces (id, organization_id, display_name, tenant_handle) VALUES ($1::uuid, $1, 'crowd', 'crowd')`,
      [other],
    );
    await stores.database.execute(
      `INSERT INTO agents.usage_hourly (workspace_id, deployment_id, hour, user_id, key_id, project_name, shard, agent_runs)
       SELECT $1::uuid, $1::uuid, timestamptz '2024-01-01 00:00Z' + make_interval(days => day), md5('user' || number)::uuid, $1::uuid, 'chat', 0, 1
       FROM generate_series(0, 2) AS day, generate_series(1, 20000) AS number`,
      [other],
    );
    const services = stores as unknown as Services;
    const caller = { permissions: new Set(['runs:read']) } as unknown as Caller;
    const ranges = { traces: 5, tokens: 3, langsmith_deployments: 3 } as const;
    for (const [kind, days] of Object.entries(ranges) as [keyof typeof ranges, number][]) {
      const json = await watchTurns(() => formatJsonOfKind[kind](services, request(other, days), caller));
      expect(JSON.parse(json.result.toString()).usage).toHaveLength(20_000 * days);
      expect(json.maxGapShare, `${kind} as JSON`).toBeLessThan(1 / 3);
      const csv = await watchTurns(async () => {
        let lines = 0;
        for await (const chunk of await formatCsvOfKind[kind](services, request(other, days), caller))
          lines += String(chunk).split('\n').length - 1;
        return lines;
      });
      expect(csv.result).toBe(20_000 * days + 1);
      expect(csv.maxGapShare, `${kind} as CSV`).toBeLessThan(1 / 3);
    }
  }, 120_000);
});
