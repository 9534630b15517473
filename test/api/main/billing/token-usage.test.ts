import { randomBytes, randomUUID } from 'node:crypto';
import { parse } from 'csv-parse/sync';
import { beforeAll, describe, expect, it } from 'vitest';
import { runFactRollUp } from '../../../../pipelines/runs/stats/count-facts.ts';
import type { GranularUsageRequest } from '../../../../pipelines/usage/report.ts';
import { runRollUp } from '../../../../pipelines/usage/rollup.ts';
import { readTokenUsage } from '../../../../pipelines/usage/token-usage.ts';
import { forSuite } from '../../../for-suite.ts';
import { attributes, request, span } from '../../../pipelines/ingest/otlp/requests.ts';
import { addKey, addOrganization, startApi } from '../../start-api.ts';

/** Granular usage with `kind=tokens`. */

const api = forSuite(() => startApi());
const ours = forSuite(() => addOrganization(api.database, 'ours'));
const theirs = forSuite(() => addOrganization(api.database, 'theirs'));

interface Call {
  readonly at: string;
  readonly tokens: number;
  readonly cost?: number;
}

/** Sends a trace whose root begins at `at`, with model calls below it; each has twice as many prompt as completion tokens. */
async function sendTrace(key: string, project: string, at: string, calls: readonly Call[]): Promise<void> {
  const segment = (time: string, id: string) => `${time.replace(/[-:.Z]/g, '')}000000Z${id}`;
  const traceId = randomUUID();
  const root = {
    id: traceId,
    trace_id: traceId,
    dotted_order: segment(at, traceId),
    name: 'agent',
    run_type: 'chain',
    start_time: at,
  };
  const below = calls.map(({ at: time, tokens, cost }) => {
    const id = randomUUID();
    const usage = { input_tokens: 2 * tokens, output_tokens: tokens, total_tokens: 3 * tokens };
    return {
      ...{ id, trace_id: traceId, parent_run_id: traceId, dotted_order: `${root.dotted_order}.${segment(time, id)}` },
      ...{ name: 'call', run_type: 'llm', start_time: time, end_time: time },
      outputs: { usage_metadata: { ...usage, ...(cost === undefined ? {} : { total_cost: cost }) } },
    };
  });
  const post = [root, ...below].map((run) => ({ session_name: project, inputs: {}, ...run }));
  expect((await api.ask(key, 'POST', '/runs/batch', { post, patch: [] })).status).toBe(202);
}

beforeAll(async () => {
  const [first, second] = ours.workspaceKeys;
  // The second call begins in another hour and on another day than the root.
  await sendTrace(first, 'bot', '2026-03-01T23:59:59Z', [
    { at: '2026-03-01T23:59:59Z', tokens: 1, cost: 0.5 },
    { at: '2026-03-02T00:00:01Z', tokens: 10, cost: 0.25 },
  ]);
  await sendTrace(first, 'bot', '2026-03-02T10:00:00Z', [{ at: '2026-03-02T10:00:00Z', tokens: 100 }]);
  await sendTrace(first, 'docs', '2026-03-02T10:30:00Z', []);
  await sendTrace(second, 'other', '2026-03-02T11:00:00Z', [{ at: '2026-03-02T11:00:01Z', tokens: 1000 }]);
  // Outside of the range.
  await sendTrace(first, 'bot', '2026-02-28T23:59:59Z', [{ at: '2026-03-01T00:00:01Z', tokens: 7 }]);
  await sendTrace(first, 'bot', '2026-03-03T00:00:00Z', [{ at: '2026-03-03T00:00:00Z', tokens: 7 }]);
  await sendTrace(theirs.workspaceKeys[0], 'theirs', '2026-03-02T10:00:00Z', [
    { at: '2026-03-02T10:00:00Z', tokens: 9 },
  ]);
  await api.settled();
});

const path = '/api/v1/orgs/current/billing/granular-usage';
const workspaces = () => `workspace_ids=${[...ours.workspaceIds, theirs.workspaceIds[0]].join(',')}`;
const days = 'start_time=2026-03-01&end_time=2026-03-03';
const ask = (more: string, key = ours.adminKey) => api.ask(key, 'GET', `${path}?kind=tokens&${workspaces()}&${more}`);
const figures = (traces: number, tokens: number, total_cost: number | null = null) => ({
  ...{ traces, prompt_tokens: 2 * tokens, completion_tokens: tokens, total_tokens: 3 * tokens, total_cost },
});
const [first, second] = [{ time_bucket: '2026-03-01T00:00:00Z' }, { time_bucket: '2026-03-02T00:00:00Z' }];
const project = (project_name: string) => ({ dimensions: { project_id: expect.any(String), project_name } });
interface Row {
  readonly time_bucket: string;
  readonly traces: number;
  readonly total_tokens: number;
  readonly total_cost: number | null;
}

// First from the runs themselves, then from their facts.
describe.each(['before', 'after'])('tokens %s the facts are counted', (when) => {
  beforeAll(async () => {
    // Traces are counted by the roll-up in both cases.
    await runRollUp({ database: api.database, clickhouse: api.services.clickhouse });
    if (when === 'before') return;
    const deps = { database: api.database, clickhouse: api.services.clickhouse };
    expect(await runFactRollUp(deps, { minAgeSeconds: 0 })).toMatchObject({ outcome: 'counted', more: false });
  });

  it('are summed by project in the bucket of the trace, beside the traces', async () => {
    const { status, body } = await ask(`${days}&group_by=project`);
    expect(status).toBe(200);
    expect(body.stride).toEqual({ days: 1, hours: 0 });
    const rows = [
      { ...first, ...project('bot'), ...figures(1, 11, 0.75) },
      { ...second, ...project('bot'), ...figures(1, 100) },
      { ...second, ...project('docs'), ...figures(1, 0) },
      { ...second, ...project('other'), ...figures(1, 1000) },
    ];
    expect(body.usage).toHaveLength(rows.length);
    expect(body.usage).toEqual(expect.arrayContaining(rows));
    expect(body.usage[0]).toEqual(rows[0]);
  });

  it('have the same totals in all groupings and strides', async () => {
    const total = (rows: readonly Row[]) => {
      const add = (read: (row: Row) => number | null) => rows.reduce((sum, row) => sum + (read(row) ?? 0), 0);
      return [add(({ traces }) => traces), add((row) => row.total_tokens), add((row) => row.total_cost)];
    };
    for (const group of ['workspace', 'project', 'user', 'api_key']) {
      const { body } = await ask(`${days}&group_by=${group}`);
      expect(total(body.usage), group).toEqual([4, 3 * 1111, 0.75]);
    }
    const long = await ask('start_time=2025-06-01&end_time=2026-03-03&group_by=project');
    expect(long.body.stride).toEqual({ days: 30, hours: 0 });
    expect(total(long.body.usage)).toEqual([5, 3 * 1118, 0.75]);
    const hours = await ask('start_time=2026-03-02T10:00:00Z&end_time=2026-03-02T11:00:00Z&group_by=workspace');
    expect(hours.body.usage).toMatchObject([{ time_bucket: '2026-03-02T10:00:00Z', ...figures(2, 100) }]);
    const users = (await ask(`${days}&group_by=user`)).body.usage;
    expect(users[0]).toEqual({
      ...first,
      dimensions: { user_id: ours.userId, user_email: 'admin@ours.example' },
      ...figures(1, 11, 0.75),
    });
  });

  it('are exported as CSV', async () => {
    const url = `${path}/export?kind=tokens&${days}&${workspaces()}&group_by=workspace`;
    const { body } = await api.server.inject({ url, headers: { 'x-api-key': ours.adminKey } });
    const rows: Record<string, string>[] = parse(body, { columns: true });
    expect(rows).toHaveLength(3);
    expect(rows[0]).toMatchObject({
      'Time Bucket Start': '2026-03-01T00:00:00Z',
      'Workspace Name': 'ours 1',
      Traces: '1',
      'Prompt Tokens': '22',
      'Completion Tokens': '11',
      'Total Tokens': '33',
      'Total Cost (USD)': '0.75',
    });
    expect(rows.map((row) => row['Total Cost (USD)']).sort()).toEqual(['', '', '0.75']);
  });
});

describe('a trace with several roots', () => {
  const org = forSuite(() => addOrganization(api.database, 'several roots'));
  beforeAll(async () => {
    const [key] = org.workspaceKeys;
    const second = await addKey({
      ...{ database: api.database, organizationId: org.id, userId: org.userId },
      ...{ workspaceIds: [org.workspaceIds[0]], permissions: ['runs:write'] },
    });
    const send = async (traceId: string, sender: string, at: string, tokens: number, hasRoot = true) => {
      const [startNanos, rootId] = [BigInt(Date.parse(at)) * 1_000_000n, randomBytes(8).toString('hex')];
      const times = { startTimeUnixNano: String(startNanos), endTimeUnixNano: String(startNanos + 1_000_000n) };
      const usage = attributes({
        ...{ 'gen_ai.operation.name': 'chat', 'gen_ai.usage.input_tokens': 2 * tokens },
        'gen_ai.usage.output_tokens': tokens,
      });
      const call = { spanId: randomBytes(8).toString('hex'), parentSpanId: rootId, name: 'call', attributes: usage };
      const root = { spanId: rootId, name: 'turn' };
      const spans = (hasRoot ? [root, call] : [call]).map((each) => span({ traceId, ...times, ...each }));
      const headers = { 'x-api-key': sender, 'content-type': 'application/json' };
      const sent = await api.server.inject({
        ...{ method: 'POST', url: '/otel/v1/traces', headers },
        payload: request(spans),
      });
      expect(sent.statusCode).toBe(200);
      await api.settled();
    };
    const newTrace = () => randomBytes(16).toString('hex');
    const early = newTrace();
    await send(early, key, '2026-03-01T23:30:00Z', 1);
    await send(early, key, '2026-03-01T23:40:00Z', 10);
    await send(early, second, '2026-03-02T00:30:00Z', 100);
    // The root that starts last is accepted first.
    const late = newTrace();
    await send(late, key, '2026-03-02T00:10:00Z', 1_000);
    await send(late, second, '2026-03-01T23:50:00Z', 10_000);
    // The root never arrives.
    await send(newTrace(), key, '2026-03-02T01:00:00Z', 100_000, false);
  });

  it.each(['before', 'after'])(
    'counts once in adjacent reports, in the bucket in which the trace counts, %s the facts are counted',
    async (when) => {
      const deps = { database: api.database, clickhouse: api.services.clickhouse };
      await runRollUp(deps);
      if (when === 'after') await runFactRollUp(deps, { minAgeSeconds: 0 });
      const read = async (range: string, group: string) => {
        const query = `kind=tokens&workspace_ids=${org.workspaceIds[0]}&${range}&group_by=${group}`;
        const { status, body } = await api.ask(org.adminKey, 'GET', `${path}?${query}`);
        expect(status).toBe(200);
        return (body.usage as Row[]).map((row) => [row.time_bucket, row.traces, row.total_tokens]);
      };
      const range = (from: string, to: string) => `start_time=${from}&end_time=${to}`;
      for (const group of ['workspace', 'project', 'user', 'api_key']) {
        const [firstDay, secondDay] = [
          ['2026-03-01T00:00:00Z', 1, 333],
          ['2026-03-02T00:00:00Z', 2, 333_000],
        ];
        expect(await read(days, group), group).toEqual([firstDay, secondDay]);
        expect(await read(range('2026-03-01', '2026-03-02'), group), group).toEqual([['2026-03-01T00:00:00Z', 1, 333]]);
        expect(await read(range('2026-03-02', '2026-03-03'), group), group).toEqual([secondDay]);
        expect(await read(range('2026-03-01T22:00:00Z', '2026-03-02T02:00:00Z'), group), group).toEqual([
          ['2026-03-01T23:00:00Z', 1, 333],
          ['2026-03-02T00:00:00Z', 1, 33_000],
          ['2026-03-02T01:00:00Z', 1, 300_000],
        ]);
      }
    },
  );
});

describe('the permission to read tokens', () => {
  it('is that of usage and of runs', async () => {
    const owner = { database: api.database, organizationId: ours.id, userId: ours.userId };
    const key = await addKey({ ...owner, permissions: ['organization:read'] });
    expect(await ask(days, key)).toMatchObject({ status: 403 });
    expect((await api.ask(key, 'GET', `${path}?${days}&${workspaces()}`)).status).toBe(200);
  });
});

// Vitest fails if a rejection is not handled, which would end the process.
it('fails once if ClickHouse fails', async () => {
  const clickhouse = {
    ...api.services.clickhouse,
    query: async () => {
      throw new Error('ClickHouse is away');
    },
  };
  const request: GranularUsageRequest = {
    organizationId: ours.id,
    workspaceIds: ours.workspaceIds,
    range: { startMs: 0, endMs: 3_600_000 },
    groupBy: 'workspace',
  };
  await expect(readTokenUsage({ clickhouse, database: api.database }, request)).rejects.toThrow('ClickHouse is away');
});
