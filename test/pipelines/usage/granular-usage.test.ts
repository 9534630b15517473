import { randomUUID } from 'node:crypto';
import { beforeAll, describe, expect, it } from 'vitest';
import { nilUuid } from '../../../pipelines/ingest/run-event/run-event.ts';
import {
  generateUsageRows,
  maxPrefetchedNames,
  readAllNames,
  readGranularUsage,
  readOrganizationUsage,
  type UsageRow,
} from '../../../pipelines/usage/report.ts';
import { buildUsageQuery, type Grouping, groupings } from '../../../pipelines/usage/report-query.ts';
import { runRollUp } from '../../../pipelines/usage/rollup.ts';
import { planBuckets, type UsageRange } from '../../../pipelines/usage/rollup-query.ts';
import { freshStores } from '../../engines/stores.ts';
import { forSuite } from '../../for-suite.ts';
import fc from '../../house/fast-check.ts';
import { deriveUuid } from '../runs/run-events.ts';
import { hourMicros, ingestRuns, type RunRow, runRow } from './trace-rows.ts';

const stores = forSuite(() => freshStores());

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
const parseRange = (start: string, end: string): UsageRange => ({ startMs: Date.parse(start), endMs: Date.parse(end) });
const total = (rows: readonly UsageRow[]) => rows.reduce((sum, { traces }) => sum + traces, 0);

const ingest = (rows: readonly RunRow[]) => ingestRuns(stores, rows);
async function ask(organizationId: string, workspaceIds: readonly string[], range: UsageRange, groupBy: Grouping) {
  const usage = await readGranularUsage(stores, { organizationId, workspaceIds, range, groupBy });
  return { stride: usage.stride, rows: [...generateUsageRows(usage)] };
}

describe('the query', () => {
  const plan = planBuckets(parseRange('2026-01-05T00:00:00Z', '2026-02-05T00:00:00Z'));

  it('matches exactly', () => {
    const query = buildUsageQuery(plan, [deriveUuid('a')], 'project');
    expect(query?.params).toEqual({
      workspace: deriveUuid('a'),
      dimension: 'project',
      start: 1_767_571_200,
      from: 1_767_571_200,
      to: 1_770_249_600,
      end: 1_770_249_600,
      origin: 1_767_571_200,
      stride: 86_400,
    });
    expect(query?.externalTable).toBeUndefined();
    expect(query?.shardOf).toBe(deriveUuid('a'));
    expect(query?.sql).toMatchInlineSnapshot(`
      "SELECT toUInt32(intDiv(toUInt32(day) * 86400 - {origin:UInt32}, {stride:UInt32})) AS bucket, ids, traces
      FROM {stored_usage_daily:Identifier} FINAL
      WHERE tenant_id = {workspace:UUID} AND dimension = {dimension:String} AND day >= toDate(toDateTime({from:UInt32}, 'UTC')) AND day < toDate(toDateTime({to:UInt32}, 'UTC'))"
    `);
  });

  it('reads hours before and after the whole days one by one, and sums a bucket of several days', () => {
    const query = buildUsageQuery(
      planBuckets(parseRange('2026-01-05T22:30:00Z', '2026-02-20T01:10:00Z')),
      [deriveUuid('a')],
      'user',
    );
    expect(query?.params).toMatchObject({
      start: Date.UTC(2026, 0, 5, 22) / 1_000,
      from: Date.UTC(2026, 0, 6) / 1_000,
      to: Date.UTC(2026, 1, 20) / 1_000,
      end: Date.UTC(2026, 1, 20, 2) / 1_000,
    });
    expect(query?.sql).toMatchInlineSnapshot(`
      "SELECT bucket, total.1 AS ids, total.2 AS traces
      FROM (SELECT bucket, sumMap(ids, traces) AS total FROM (
      SELECT toUInt32(intDiv(toUnixTimestamp(hour) - {origin:UInt32}, {stride:UInt32})) AS bucket, ids, traces
      FROM {stored_usage_hourly:Identifier} FINAL
      WHERE tenant_id = {workspace:UUID} AND dimension = {dimension:String} AND hour >= toDateTime({start:UInt32}, 'UTC') AND hour < toDateTime({from:UInt32}, 'UTC')
      UNION ALL
      SELECT toUInt32(intDiv(toUInt32(day) * 86400 - {origin:UInt32}, {stride:UInt32})) AS bucket, ids, traces
      FROM {stored_usage_daily:Identifier} FINAL
      WHERE tenant_id = {workspace:UUID} AND dimension = {dimension:String} AND day >= toDate(toDateTime({from:UInt32}, 'UTC')) AND day < toDate(toDateTime({to:UInt32}, 'UTC'))
      UNION ALL
      SELECT toUInt32(intDiv(toUnixTimestamp(hour) - {origin:UInt32}, {stride:UInt32})) AS bucket, ids, traces
      FROM {stored_usage_hourly:Identifier} FINAL
      WHERE tenant_id = {workspace:UUID} AND dimension = {dimension:String} AND hour >= toDateTime({to:UInt32}, 'UTC') AND hour < toDateTime({end:UInt32}, 'UTC')
      ) GROUP BY bucket)"
    `);
  });

  it.each([
    ['below a day', '2026-01-05T22:30:00Z', '2026-01-06T20:00:00Z'],
    ['a day and more without a whole one', '2026-01-05T12:00:00Z', '2026-01-06T23:00:00Z'],
  ])('reads only hours: %s', (_name, start, end) => {
    const query = buildUsageQuery(planBuckets(parseRange(start, end)), [deriveUuid('a')], 'user');
    expect(query?.sql).not.toContain('usage_daily');
    expect(query?.sql.match(/usage_hourly/g)).toHaveLength(1);
    expect(query?.sql).toContain('sumMap(');
  });

  it('sums the days of several workspaces', () => {
    const query = buildUsageQuery(plan, [deriveUuid('a'), deriveUuid('b')], 'user');
    expect(query?.sql).toContain('sumMap(');
    expect(query?.params).toMatchObject({
      workspaces: [deriveUuid('a'), deriveUuid('b')],
      stored_usage_hourly: 'usage_hourly',
      stored_usage_daily: 'usage_daily',
    });
    expect(query?.shardOf).toBeUndefined();
  });

  it('sends long lists of workspaces as a table', () => {
    const ids = Array.from({ length: 2_001 }, (_, index) => deriveUuid('workspace', index));
    const query = buildUsageQuery(plan, ids, 'user');
    expect(query?.params).not.toHaveProperty('workspaces');
    expect(query?.externalTable).toEqual({
      name: 'workspaces',
      structure: 'tenant_id UUID',
      rows: ids.map((id) => [id]),
    });
    expect(query?.sql).toContain('WHERE tenant_id IN workspaces AND');
  });

  it('is not sent if nothing can match', () => {
    expect(buildUsageQuery(plan, [], 'project')).toBeUndefined();
    const late = planBuckets(parseRange('2150-01-01T00:00:00Z', '2160-01-01T00:00:00Z'));
    expect(buildUsageQuery(late, [deriveUuid('a')], 'project')).toBeUndefined();
  });
});

describe('names', () => {
  const organizationId = randomUUID();
  const workspaceId = randomUUID();
  const [liveProject, deletedProject, foreignProject, lostProject] = Array.from({ length: 4 }, () => randomUUID());
  const [user, keyUser] = [randomUUID(), randomUUID()];
  const [liveKey, revokedKey, twinKey] = [randomUUID(), randomUUID(), randomUUID()];
  const range = parseRange('2026-03-05T00:00:00Z', '2026-03-06T00:00:00Z');

  beforeAll(async () => {
    const { database } = stores;
    const [otherOrganization, otherWorkspace] = [randomUUID(), randomUUID()];
    await database.query('INSERT INTO organizations (id, display_name) VALUES ($1, $2), ($3, $4)', [
      organizationId,
      'Ours',
      otherOrganization,
      'Theirs',
    ]);
    await database.query(
      'INSERT INTO workspaces (id, organization_id, display_name) VALUES ($1, $2, $3), ($4, $5, $6)',
      [workspaceId, organizationId, 'Before', otherWorkspace, otherOrganization, 'Secret'],
    );
    await database.query('UPDATE workspaces SET display_name = $2 WHERE id = $1', [workspaceId, 'Of today']);
    await database.query(
      `INSERT INTO projects (id, workspace_id, name, deleted_at)
       VALUES ($1, $4, 'Live', NULL), ($2, $4, 'Gone', now()), ($3, $5, 'Foreign', NULL)`,
      [liveProject, deletedProject, foreignProject, workspaceId, otherWorkspace],
    );
    await database.query("INSERT INTO users (id, organization_id, email) VALUES ($1, $2, 'ann@example.org')", [
      user,
      organizationId,
    ]);
    for (const [id, shortKey, revoked] of [
      [liveKey, 'rl_live...', false],
      [revokedKey, 'rl_same...', true],
      [twinKey, 'rl_same...', false],
    ] as const) {
      await database.query(
        `INSERT INTO api_keys (id, organization_id, user_id, hash, short_key, description, permissions, revoked_at)
         VALUES ($1, $2, $3, $4, $5, '', '{}', CASE WHEN $6 THEN now() END)`,
        [id, organizationId, user, Buffer.from(id), shortKey, revoked],
      );
    }
    const at = { tenantId: workspaceId, userId: user, keyId: liveKey };
    await ingest([
      runRow({ ...at, projectId: liveProject! }),
      runRow({ ...at, projectId: deletedProject!, keyId: revokedKey }),
      runRow({ ...at, projectId: deletedProject!, keyId: twinKey, userId: keyUser }),
      runRow({ ...at, projectId: foreignProject!, keyId: nilUuid, userId: nilUuid }),
      runRow({ ...at, projectId: lostProject!, keyId: randomUUID(), userId: nilUuid }),
    ]);
    await runRollUp(stores);
  });

  const table: Array<[Grouping, Array<Record<string, string | null | number>>]> = [
    ['workspace', [{ workspace_id: workspaceId, workspace_name: 'Of today', traces: 5 }]],
    [
      'project',
      [
        { project_id: liveProject!, project_name: 'Live', traces: 1 },
        { project_id: deletedProject!, project_name: 'Gone', traces: 2 },
        // The name of another organisation's project is not returned.
        { project_id: foreignProject!, project_name: null, traces: 1 },
        { project_id: lostProject!, project_name: null, traces: 1 },
      ],
    ],
    [
      'user',
      [
        { user_id: user, user_email: 'ann@example.org', traces: 2 },
        { user_id: keyUser, user_email: null, traces: 1 },
        { user_id: null, user_email: null, traces: 2 },
      ],
    ],
    [
      'api_key',
      [
        { api_key_short_key: 'rl_live...', traces: 1 },
        { api_key_short_key: 'rl_same...', traces: 2 },
        { api_key_short_key: null, traces: 2 },
      ],
    ],
  ];
  for (const [groupBy, expected] of table) {
    it(`are the current ones, by ${groupBy}`, async () => {
      const { rows, stride } = await ask(organizationId, [workspaceId], range, groupBy);
      expect(stride).toEqual({ days: 1, hours: 0 });
      const startSeconds = range.startMs / 1_000;
      const labelled = expected.map(({ traces, ...dimensions }) => ({
        startSeconds,
        endSeconds: startSeconds + 86_400,
        dimensions,
        traces,
      }));
      const byId = (row: { dimensions: object }) => JSON.stringify(Object.values(row.dimensions));
      expect(rows).toEqual(labelled.sort((a, b) => (byId(a) < byId(b) ? -1 : 1)));
    });
  }

  it.each(groupings)('are the same if there are too many to read them all, by %s', async (groupBy) => {
    const before = await ask(organizationId, [workspaceId], range, groupBy);
    const many: Readonly<Record<Grouping, string>> = {
      workspace: `INSERT INTO workspaces (id, organization_id, display_name) SELECT gen_random_uuid(), $1, n::text FROM n`,
      project: `INSERT INTO projects (id, workspace_id, name) SELECT gen_random_uuid(), $2, n::text FROM n`,
      user: `INSERT INTO users (id, organization_id, email) SELECT gen_random_uuid(), $1, n || '@example.org' FROM n`,
      api_key: `INSERT INTO api_keys (id, organization_id, user_id, hash, short_key, description, permissions)
        SELECT gen_random_uuid(), $1, $3, sha256(n::text::bytea), n::text, '', '{}' FROM n`,
    };
    const ids = [organizationId, workspaceId, user];
    const needed = ids.filter((_, index) => many[groupBy].includes(`$${index + 1}`));
    const sql = needed.reduce((text, id) => text.replace(`$${ids.indexOf(id) + 1}`, `'${id}'`), many[groupBy]);
    await stores.database.query(`WITH n AS (SELECT generate_series(1, ${maxPrefetchedNames}) AS n) ${sql}`);
    expect(await readAllNames(stores.database, organizationId, groupBy)).toBeUndefined();
    expect(await ask(organizationId, [workspaceId], range, groupBy)).toEqual(before);
  });
});

describe('against a model', () => {
  const organizationId = randomUUID();
  const epochHour = Date.UTC(2023, 6, 1) / hourMs;
  const hours = 3 * 365 * 24;
  const tenants = [deriveUuid('model', 1), deriveUuid('model', 2), deriveUuid('model', 3)] as const;
  /** One fact per trace: the hour, and the sender of the run that was accepted first. */
  const facts = new Map<string, RunRow>();

  beforeAll(async () => {
    const random = fc.sample(fc.double({ min: 0, max: 1, noNaN: true, maxExcluded: true }), {
      numRuns: 60_000,
      seed: 7,
    });
    let drawn = 0;
    const pick = (count: number) => Math.floor(random[drawn++ % random.length]! * count);
    let accepted = Date.UTC(2026, 6, 1) * 1_000;
    const rows: RunRow[] = [];
    for (let trace = 0; trace < 900; trace++) {
      const tenantId = tenants[pick(3)]!;
      // Some hours are crowded; most contain one trace.
      const hour = epochHour + (pick(3) === 0 ? pick(40) * 600 : pick(hours));
      const shared = {
        tenantId,
        projectId: deriveUuid('project', tenantId, pick(6)),
        traceId: deriveUuid('trace', trace),
        traceMicros: hour * hourMicros + pick(3_600_000_000),
      };
      for (let run = pick(4); run >= 0; run--) {
        accepted += 1 + pick(5);
        const row = runRow({
          ...shared,
          acceptedMicros: accepted,
          userId: deriveUuid('user', pick(9)),
          keyId: deriveUuid('key', pick(15)),
        });
        rows.push(row);
        const known = facts.get(shared.traceId);
        if (!known || row.acceptedMicros < known.acceptedMicros) facts.set(shared.traceId, row);
      }
    }
    // Rows in any order, repeated, in chunks, with roll-up runs between the chunks.
    const shuffled = rows
      .flatMap((row) => [row, ...(pick(3) === 0 ? [row] : [])])
      .map((row) => ({ row, at: pick(1e9) }));
    shuffled.sort((a, b) => a.at - b.at);
    while (shuffled.length > 0) {
      await ingest(shuffled.splice(0, 60 + pick(600)).map(({ row }) => row));
      if (pick(2) === 0) await runRollUp(stores);
    }
    await runRollUp(stores);
  }, 120_000);

  const computeExpected = (workspaceIds: readonly string[], range: UsageRange, groupBy: Grouping) => {
    const plan = planBuckets(range);
    const counts = new Map<string, number>();
    for (const fact of facts.values()) {
      const seconds = Math.floor(fact.traceMicros / 1_000_000);
      if (seconds < plan.startInclusiveSeconds || seconds >= plan.endExclusiveSeconds) continue;
      if (!workspaceIds.includes(fact.tenantId)) continue;
      const bucket = Math.floor((seconds - plan.originSeconds) / plan.strideSeconds);
      const { tenantId, projectId, userId } = fact;
      const id = { workspace: tenantId, project: projectId, user: userId, api_key: null }[groupBy];
      const key = `${plan.originSeconds + bucket * plan.strideSeconds} ${id}`;
      counts.set(key, (counts.get(key) ?? 0) + 1);
    }
    return Object.fromEntries([...counts].sort());
  };
  const found = (rows: readonly UsageRow[]) =>
    Object.fromEntries(
      rows.map((row) => [`${row.startSeconds} ${Object.values(row.dimensions)[0]}`, row.traces] as const).sort(),
    );

  const ranges = fc.record({
    startMs: fc.integer({ min: (epochHour - 100) * hourMs, max: (epochHour + hours) * hourMs }),
    lengthMs: fc.oneof(
      fc.integer({ min: 1, max: 2 * dayMs }),
      fc.integer({ min: 1, max: 100 * dayMs }),
      fc.integer({ min: 1, max: 1_200 * dayMs }),
      fc.constantFrom(1, 31, 93, 366).map((days) => days * dayMs),
    ),
  });

  it('every bucket of every grouping is right, and every grouping sums to the same total', async () => {
    await fc.assert(
      fc.asyncProperty(
        ranges,
        fc.subarray([...tenants], { minLength: 1 }),
        async ({ startMs, lengthMs }, workspaceIds) => {
          const range = { startMs, endMs: startMs + lengthMs };
          const totals = new Set<number>();
          for (const groupBy of groupings) {
            const { rows } = await ask(organizationId, workspaceIds, range, groupBy);
            expect(found(rows)).toEqual(computeExpected(workspaceIds, range, groupBy));
            totals.add(total(rows));
          }
          const whole = await readOrganizationUsage(stores, { organizationId, workspaceIds, range });
          totals.add(whole.traces);
          expect(totals.size).toBe(1);
          expect(Object.values(whole.byWorkspace).reduce((sum, traces) => sum + traces, 0)).toBe(whole.traces);
        },
      ),
      { numRuns: 40 },
    );
  }, 120_000);

  it('counts every trace in the total', async () => {
    const range = { startMs: (epochHour - 1) * hourMs, endMs: (epochHour + hours + 30_000) * hourMs };
    for (const groupBy of groupings) {
      const { rows, stride } = await ask(organizationId, tenants, range, groupBy);
      expect(stride.days).toBe(365);
      expect(total(rows)).toBe(facts.size);
    }
  });

  it('covers a range that begins before the first trace and ends after the last time of ClickHouse', async () => {
    const range = parseRange('2020-01-01T00:00:00Z', '2190-01-01T00:00:00Z');
    expect(total((await ask(organizationId, tenants, range, 'workspace')).rows)).toBe(facts.size);
  });

  it('counts the same with a list of workspaces that is too long for a parameter', async () => {
    const range = { startMs: epochHour * hourMs, endMs: (epochHour + hours) * hourMs };
    const more = Array.from({ length: 9_997 }, () => randomUUID());
    const short = await ask(organizationId, tenants, range, 'project');
    expect(await ask(organizationId, [...more, ...tenants], range, 'project')).toEqual(short);
  });

  it('daily buckets are the sums of the hourly ones', async () => {
    const crowded = [...facts.values()].map(({ traceMicros }) => Math.floor(traceMicros / 1_000 / dayMs));
    for (const day of crowded.slice(0, 10)) {
      const startMs = day * dayMs;
      for (const groupBy of groupings) {
        const [daily] = [await ask(organizationId, tenants, { startMs, endMs: startMs + dayMs }, groupBy)];
        const hourly = [
          ...(await ask(organizationId, tenants, { startMs, endMs: startMs + 12 * hourMs }, groupBy)).rows,
          ...(await ask(organizationId, tenants, { startMs: startMs + 12 * hourMs, endMs: startMs + dayMs }, groupBy))
            .rows,
        ];
        const sums = new Map<string, number>();
        for (const { dimensions, traces } of hourly) {
          const key = JSON.stringify(dimensions);
          sums.set(key, (sums.get(key) ?? 0) + traces);
        }
        expect(Object.fromEntries(daily.rows.map((row) => [JSON.stringify(row.dimensions), row.traces]))).toEqual(
          Object.fromEntries(sums),
        );
      }
    }
  });
});
