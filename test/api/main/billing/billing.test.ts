import { randomUUID } from 'node:crypto';
import { beforeAll, describe, expect, it } from 'vitest';
import { markHoursDirty } from '../../../../pipelines/usage/mark-hours-dirty.ts';
import { runRollUp } from '../../../../pipelines/usage/rollup.ts';
import { forSuite } from '../../../for-suite.ts';
import { insertRuns, runRow, toDirtyHours } from '../../../pipelines/usage/trace-rows.ts';
import { addKey, addOrganization, startApi } from '../../start-api.ts';

const path = '/api/v1/orgs/current/billing';
const header =
  'Time Bucket Start,Time Bucket End,Workspace ID,Workspace Name,Project ID,Project Name,User ID,User Email,API Key Short Key,Traces';
const evilNames = [
  '=1+2',
  '+1',
  '-1',
  '@SUM(A1)',
  '\t=1',
  '\r=1',
  '\n=1',
  '  =1',
  '"=1',
  "'=1",
  ' \u200b=1',
  '＝1',
  'plain, "quoted"\r\nlines',
  'ünïcode ✓',
];

const api = forSuite(() => startApi());
const ours = forSuite(() => addOrganization(api.database, 'ours'));
const otherOrganization = forSuite(() => addOrganization(api.database, 'theirs'));
const projects = evilNames.map((name) => ({ id: randomUUID(), name }));

beforeAll(async () => {
  for (const { id, name } of projects) {
    await api.database.execute('INSERT INTO projects (id, workspace_id, name) VALUES ($1, $2, $3)', [
      id,
      ours.workspaceIds[0],
      name,
    ]);
  }
  const keys = await api.database.query<{ id: string }>(
    'SELECT id FROM api_keys WHERE organization_id = $1 ORDER BY id',
    [ours.id],
  );
  const rows = projects.flatMap(({ id }, index) =>
    Array.from({ length: index + 1 }, () =>
      runRow({
        tenantId: ours.workspaceIds[index % 2]!,
        projectId: id,
        userId: ours.userId,
        keyId: keys[index % keys.length]!.id,
        traceMicros: Date.UTC(2026, 2, 1 + index, 10, 30) * 1_000,
      }),
    ),
  );
  rows.push(runRow({ tenantId: otherOrganization.workspaceIds[0], userId: otherOrganization.userId }));
  await insertRuns(api.services.clickhouse, rows);
  await markHoursDirty(api.database, toDirtyHours(rows));
  await runRollUp(api.services);
});

type Query = Record<string, string | readonly string[]>;
const marchRange = { start_time: '2026-03-01T00:00:00Z', end_time: '2026-03-31T00:00:00Z' };

async function get(operation: string, query: Query, key = ours.adminKey) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query))
    for (const item of [value].flat()) search.append(name, item as string);
  return api.server.inject({ url: `${path}/${operation}?${search}`, headers: { 'x-api-key': key } });
}
async function queryGranularUsage(query: Query, key?: string) {
  const answer = await get('granular-usage', { ...marchRange, ...query }, key);
  expect(answer.statusCode, answer.body).toBe(200);
  return answer.json() as {
    stride: object;
    usage: Array<{ time_bucket: string; dimensions: Record<string, string | null>; traces: number }>;
  };
}
const total = (usage: ReadonlyArray<{ traces: number }>) => usage.reduce((sum, { traces }) => sum + traces, 0);
const allTraces = (evilNames.length * (evilNames.length + 1)) / 2;

describe('granular usage', () => {
  it('returns stride, buckets and the dimensions of the grouping', async () => {
    const byWorkspace = await queryGranularUsage({ workspace_ids: ours.workspaceIds });
    expect(byWorkspace.stride).toEqual({ days: 1, hours: 0 });
    expect(byWorkspace.usage.slice(0, 2)).toEqual([
      {
        time_bucket: '2026-03-01T00:00:00Z',
        dimensions: { workspace_id: ours.workspaceIds[0], workspace_name: 'ours 1' },
        traces: 1,
      },
      {
        time_bucket: '2026-03-02T00:00:00Z',
        dimensions: { workspace_id: ours.workspaceIds[1], workspace_name: 'ours 2' },
        traces: 2,
      },
    ]);
    const keys = {
      project: ['project_id', 'project_name'],
      user: ['user_id', 'user_email'],
      api_key: ['api_key_short_key'],
    };
    for (const [grouping, names] of Object.entries(keys)) {
      const { usage } = await queryGranularUsage({ workspace_ids: ours.workspaceIds, group_by: grouping });
      expect(total(usage)).toBe(allTraces);
      for (const { dimensions } of usage) {
        expect(Object.keys(dimensions)).toEqual(names);
        expect(Object.values(dimensions)).not.toContain(null);
      }
    }
    expect(total(byWorkspace.usage)).toBe(allTraces);
  });

  it('accepts ids repeated, with commas, in upper case and twice', async () => {
    const [first, second] = ours.workspaceIds;
    for (const workspace_ids of [[first, second], `${first},${second}`, [`${first}, `, second.toUpperCase(), second]]) {
      expect(total((await queryGranularUsage({ workspace_ids })).usage)).toBe(allTraces);
    }
  });

  it('omits workspaces that the key cannot read', async () => {
    const [first, second] = ours.workspaceIds;
    const everything = [first, second, ...otherOrganization.workspaceIds, randomUUID()];
    expect(total((await queryGranularUsage({ workspace_ids: everything })).usage)).toBe(allTraces);
    expect((await queryGranularUsage({ workspace_ids: otherOrganization.workspaceIds })).usage).toEqual([]);
    const owner = { database: api.database, organizationId: ours.id, userId: ours.userId };
    const workspaceKey = await addKey({ ...owner, workspaceIds: [second], permissions: ['organization:read'] });
    const { usage } = await queryGranularUsage({ workspace_ids: everything }, workspaceKey);
    expect(new Set(usage.map(({ dimensions }) => dimensions.workspace_id))).toEqual(new Set([second]));
    const whole = await get(
      'usage',
      { starting_on: marchRange.start_time, ending_before: marchRange.end_time },
      workspaceKey,
    );
    expect(whole.json()).toMatchObject([{ value: total(usage), groups: { [second]: total(usage) } }]);
  });

  it('accepts times in every form of ISO 8601', async () => {
    const workspace_ids = ours.workspaceIds;
    for (const [start_time, end_time] of [
      ['2026-03-01', '2026-03-31'],
      ['2026-03-01T00:00', '2026-03-31 00:00:00'],
      ['2026-03-01T00:00:00.000000', '2026-03-31T00:00:00.000000000z'],
      ['2026-03-01T02:00:00+02:00', '2026-03-30T19:00:00-0500'],
      ['2026-03-01T02:00:00 02:00', '2026-03-31T00:00:00+00:00'],
    ] as const) {
      const { stride, usage } = await queryGranularUsage({ workspace_ids, start_time, end_time });
      expect([stride, total(usage)]).toEqual([{ days: 1, hours: 0 }, allTraces]);
    }
  });

  it('counts partial hours at both ends in full', async () => {
    const at = (start_time: string, end_time: string) =>
      queryGranularUsage({ workspace_ids: ours.workspaceIds, start_time, end_time });
    expect(await at('2026-03-03T10:59:59.999Z', '2026-03-03T11:00:00Z')).toMatchObject({
      stride: { days: 0, hours: 1 },
      usage: [{ time_bucket: '2026-03-03T10:00:00Z', traces: 3 }],
    });
    expect((await at('2026-03-03T11:00:00Z', '2026-03-03T12:00:00Z')).usage).toEqual([]);
    expect(total((await at('2026-03-03T09:00:00Z', '2026-03-03T10:00:00.000001Z')).usage)).toBe(3);
    expect(total((await at('2026-03-03T09:00:00Z', '2026-03-03T10:00:00Z')).usage)).toBe(0);
  });

  it('derives the stride from the requested range, at each threshold', async () => {
    const startMs = Date.parse('2026-03-01T00:00:00Z');
    for (const [seconds, days, hours] of [
      [86_399, 0, 1],
      [86_400, 1, 0],
      [31 * 86_400, 1, 0],
      [32 * 86_400, 7, 0],
      [93 * 86_400, 7, 0],
      [94 * 86_400, 30, 0],
      [366 * 86_400, 30, 0],
      [367 * 86_400, 365, 0],
    ] as const) {
      const end_time = new Date(startMs + seconds * 1_000).toISOString();
      const { stride } = await queryGranularUsage({ workspace_ids: ours.workspaceIds, end_time });
      expect(stride).toEqual({ days, hours });
    }
  });
});

describe('an invalid request', () => {
  const id = randomUUID();
  const good: Query = { ...marchRange, workspace_ids: [id] };
  const ids = (count: number) => Array.from({ length: count }, () => randomUUID());
  const table: Array<[string, Query, string]> = [
    ['missing start', { ...good, start_time: [] }, 'start_time'],
    ['an empty end', { ...good, end_time: '' }, 'end_time'],
    ['missing workspace', { ...good, workspace_ids: [] }, 'workspace_ids'],
    ['an empty workspace', { ...good, workspace_ids: '' }, 'workspace_ids'],
    ['nothing but commas', { ...good, workspace_ids: ',,' }, 'workspace_ids'],
    ['201 workspaces', { ...good, workspace_ids: ids(201) }, 'workspace_ids'],
    ['201 workspaces with commas', { ...good, workspace_ids: ids(201).join(',') }, 'workspace_ids'],
    ['an id that is not a UUID', { ...good, workspace_ids: [id, "x' OR 1=1 --"] }, 'workspace_ids'],
    ['a UUID with too few digits', { ...good, workspace_ids: id.slice(1) }, 'workspace_ids'],
    ['the end at the start', { ...good, end_time: marchRange.start_time }, 'end_time'],
    ['the end before the start', { ...good, end_time: '2026-02-01T00:00:00Z' }, 'end_time'],
    ['the end before the start, by zone', { ...good, end_time: '2026-03-01T01:00:00+02:00' }, 'end_time'],
    ['30 February', { ...good, start_time: '2026-02-30T00:00:00Z' }, 'start_time'],
    ['25 o’clock', { ...good, start_time: '2026-03-01T25:00:00Z' }, 'start_time'],
    ['minute 60', { ...good, start_time: '2026-03-01T10:60:00Z' }, 'start_time'],
    ['month 13', { ...good, start_time: '2026-13-01T00:00:00Z' }, 'start_time'],
    ['an offset of 20 hours', { ...good, start_time: '2026-03-01T00:00:00+20:00' }, 'start_time'],
    ['epoch seconds', { ...good, start_time: '1772323200' }, 'start_time'],
    ['words', { ...good, start_time: 'yesterday' }, 'start_time'],
    ['SQL', { ...good, start_time: "2026-03-01' OR '1'='1" }, 'start_time'],
    ['two starts', { ...good, start_time: ['2026-03-01', '2026-03-02'] }, 'start_time'],
    ['the year 1969', { ...good, start_time: '1969-12-31T23:59:59Z' }, 'start_time'],
    ['the year 2201', { ...good, end_time: '2201-01-01T00:00:00Z' }, 'end_time'],
    ['the year 50', { ...good, start_time: '0050-01-01T00:00:00Z' }, 'start_time'],
    ['an unknown grouping', { ...good, group_by: 'model' }, 'group_by'],
    ['a newer grouping', { ...good, group_by: 'trace_tier' }, 'group_by'],
  ];
  for (const operation of ['granular-usage', 'granular-usage/export']) {
    for (const [what, query, parameter] of table) {
      it(`${what} (${operation})`, async () => {
        const answer = await get(operation, query);
        expect(answer.statusCode, answer.body).toBe(422);
        const { detail } = answer.json() as { detail: Array<{ loc: unknown[]; msg: string; type: string }> };
        expect(detail.length).toBeGreaterThan(0);
        for (const item of detail) {
          expect(item.loc.slice(0, 2)).toEqual(['query', parameter]);
          expect(item).toMatchObject({ msg: expect.any(String), type: expect.any(String) });
        }
      });
    }

    it(`rejects parameters that are not implemented (${operation})`, async () => {
      const answer = await get(operation, { ...good, trace_tier: 'longlived' } as Query);
      expect(answer.statusCode).toBe(400);
      expect(answer.json().detail).toContain('trace_tier');
      expect((await get(operation, { ...good, kind: 'traces' })).statusCode).toBe(200);
    });

    it(`rejects a missing key, a wrong key, and a key without the permission (${operation})`, async () => {
      expect((await api.server.inject({ url: `${path}/${operation}` })).statusCode).toBe(401);
      expect((await get(operation, good, 'rl_wrong')).statusCode).toBe(401);
      const owner = { database: api.database, organizationId: ours.id, userId: ours.userId };
      const keyWithoutPermission = await addKey({ ...owner, permissions: ['runs:read', 'runs:write'] });
      const answer = await get(operation, good, keyWithoutPermission);
      expect([answer.statusCode, answer.body]).toEqual([403, expect.stringContaining('organization:read')]);
    });

    it(`accepts 200 workspaces (${operation})`, async () => {
      expect((await get(operation, { ...good, workspace_ids: ids(200) })).statusCode).toBe(200);
    });
  }

  it('is rejected by the report of the organisation in the same way', async () => {
    const good = { starting_on: marchRange.start_time, ending_before: marchRange.end_time };
    for (const [query, parameter] of [
      [{ ...good, starting_on: '' }, 'starting_on'],
      [{ ...good, ending_before: marchRange.start_time }, 'ending_before'],
      [{ ...good, on_current_plan: 'perhaps' }, 'on_current_plan'],
      [{ ...good, starting_on: '2026-02-30' }, 'starting_on'],
    ] as const) {
      const answer = await get('usage', query);
      expect(answer.statusCode, answer.body).toBe(422);
      expect(answer.json().detail[0].loc).toEqual(['query', parameter]);
    }
  });
});

describe('the export', () => {
  const parseCsvCells = (text: string): string[][] => {
    // RFC 4180 parser, independent of the library that writes the file.
    const rows: string[][] = [[]];
    const cell = /(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r\n|$)/gy;
    for (let match = cell.exec(text); match && match.index < text.length; match = cell.exec(text)) {
      rows.at(-1)!.push(match[1]?.replaceAll('""', '"') ?? match[2] ?? '');
      if (match[3] === '\r\n') rows.push([]);
    }
    expect(rows.pop()).toEqual([]);
    return rows;
  };
  const columnIndexes: Record<string, number> = {
    workspace_id: 2,
    workspace_name: 3,
    project_id: 4,
    project_name: 5,
    user_id: 6,
    user_email: 7,
    api_key_short_key: 8,
  };

  it('is a file with exactly these columns', async () => {
    const answer = await get('granular-usage/export', { ...marchRange, workspace_ids: ours.workspaceIds });
    expect(answer.statusCode).toBe(200);
    expect(answer.headers['content-type']).toBe('text/csv; charset=utf-8');
    expect(answer.headers['content-disposition']).toBe(
      'attachment; filename="usage-by-workspace-2026-03-01-to-2026-03-31.csv"',
    );
    const [first, second] = answer.body.split('\r\n');
    expect(first).toBe(header);
    expect(second).toBe(`2026-03-01T00:00:00Z,2026-03-02T00:00:00Z,${ours.workspaceIds[0]},ours 1,,,,,,1`);
    expect(answer.body.endsWith('\r\n')).toBe(true);
    expect(answer.body.replaceAll('\r\n', '')).not.toMatch(/[\r\n]/);
  });

  it('has only the header if there is no usage', async () => {
    const answer = await get('granular-usage/export', { ...marchRange, workspace_ids: [randomUUID()] });
    expect(answer.body).toBe(`${header}\r\n`);
  });

  for (const [stride, range] of Object.entries({
    hourly: { start_time: '2026-03-05T09:59:00Z', end_time: '2026-03-05T20:00:01Z' },
    daily: { start_time: '2026-03-01T10:59:00Z', end_time: '2026-03-31T07:20:00Z' },
    weekly: { start_time: '2026-02-22T10:59:00Z', end_time: '2026-04-20T07:20:00Z' },
    monthly: { start_time: '2025-12-22T10:59:00Z', end_time: '2026-04-20T07:20:00Z' },
    yearly: { start_time: '2020-12-22T10:59:00Z', end_time: '2026-04-20T07:20:00Z' },
  })) {
    for (const group_by of ['workspace', 'project', 'user', 'api_key']) {
      it(`matches the JSON in every cell, ${stride}, by ${group_by}`, async () => {
        const query = { ...range, workspace_ids: ours.workspaceIds, group_by };
        const { usage, stride: size } = (await queryGranularUsage(query)) as unknown as {
          usage: Array<{ time_bucket: string; dimensions: Record<string, string | null>; traces: number }>;
          stride: { days: number; hours: number };
        };
        const rows = parseCsvCells((await get('granular-usage/export', query)).body);
        expect(rows.shift()).toEqual(header.split(','));
        expect(rows).toHaveLength(usage.length);
        expect(usage.length).toBeGreaterThan(0);
        const endOfRange = Math.ceil(Date.parse(range.end_time) / 3_600_000) * 3_600_000;
        for (const [index, { time_bucket, dimensions, traces }] of usage.entries()) {
          const end = Date.parse(time_bucket) + (size.days * 24 + size.hours) * 3_600_000;
          const expected = Array.from({ length: 10 }, () => '');
          expected[0] = time_bucket;
          expected[1] = new Date(Math.min(end, endOfRange)).toISOString().replace('.000Z', 'Z');
          for (const [name, value] of Object.entries(dimensions)) expected[columnIndexes[name]!] = value ?? '';
          expected[9] = String(traces);
          const cells = rows[index]!.map((cell, column) =>
            column === 5 && cell !== expected[5] ? cell.replace(/^'/, '') : cell,
          );
          expect(cells).toEqual(expected);
        }
      });
    }
  }

  it('escapes formulas and keeps other text', async () => {
    const { body } = await get('granular-usage/export', {
      ...marchRange,
      workspace_ids: ours.workspaceIds,
      group_by: 'project',
    });
    const names = new Map(parseCsvCells(body).map((cells) => [cells[4], cells[5]]));
    for (const { id, name } of projects) {
      const harmless = /^[\p{L}]/u.test(name);
      expect(names.get(id)).toBe(harmless ? name : `'${name}`);
    }
  });
});

describe('usage of the organisation', () => {
  it('is one metric with groups by workspace, equal to the sum of granular usage', async () => {
    const answer = await get('usage', {
      starting_on: '2026-03-01T00:30:00Z',
      ending_before: '2026-03-31',
      on_current_plan: 'true',
    });
    expect(answer.statusCode, answer.body).toBe(200);
    const sums: Record<string, number> = {};
    for (const { dimensions, traces } of (await queryGranularUsage({ workspace_ids: ours.workspaceIds })).usage) {
      sums[dimensions.workspace_id!] = (sums[dimensions.workspace_id!] ?? 0) + traces;
    }
    expect(answer.json()).toEqual([
      {
        customer_id: ours.id,
        billable_metric_id: 'traces',
        billable_metric_name: 'Traces',
        start_timestamp: '2026-03-01T00:00:00Z',
        end_timestamp: '2026-03-31T00:00:00Z',
        value: allTraces,
        groups: sums,
      },
    ]);
  });

  it('is zero without usage', async () => {
    const answer = await get('usage', { starting_on: '2020-01-01', ending_before: '2021-01-01' });
    expect(answer.json()).toMatchObject([{ value: 0, groups: {} }]);
  });
});
