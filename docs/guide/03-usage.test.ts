// # 3. Usage
//
// Usage is the number of traces, counted exactly: a trace counts once per workspace, in the hour of its start, however often
// and in whatever pieces its runs arrive. New traces show within seconds, late ones for old hours too.

import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type RunlakeProcess, startRunlake } from '../../test/runlake-process.ts';

let runlake: RunlakeProcess;
let workspaceId: string;

const dayMs = 24 * 3_600_000;
const midnightMs = Math.floor(Date.now() / dayMs) * dayMs;
const iso = (ms: number) => new Date(ms).toISOString();

const ask = (path: string, body?: object) =>
  fetch(`${runlake.url}/api/v1${path}`, {
    method: body === undefined ? 'GET' : 'POST',
    headers: { 'x-api-key': runlake.apiKey, 'content-type': 'application/json' },
    ...(body && { body: JSON.stringify(body) }),
  });

async function usage(groupBy: string, startMs: number, endMs: number) {
  const query = new URLSearchParams({
    start_time: iso(startMs),
    end_time: iso(endMs),
    workspace_ids: workspaceId,
    group_by: groupBy,
  });
  return (await (await ask(`/orgs/current/billing/granular-usage?${query}`)).json()) as {
    stride: { days: number; hours: number };
    usage: { time_bucket: string; dimensions: Record<string, string>; traces: number }[];
  };
}

beforeAll(async () => {
  runlake = await startRunlake();
  [{ id: workspaceId }] = (await (await ask('/workspaces')).json()) as [{ id: string }];

  // Two traces of three days ago and one of two weeks ago, the latter in another project.
  const traces = [
    { start_time: iso(midnightMs - 3 * dayMs + 3_600_000), session_name: 'shop' },
    { start_time: iso(midnightMs - 3 * dayMs + 7_200_000), session_name: 'shop' },
    { start_time: iso(midnightMs - 14 * dayMs), session_name: 'backoffice' },
  ].map((trace) => ({ ...trace, id: randomUUID(), name: 'answer', run_type: 'chain', inputs: {} }));
  for (const trace of [...traces, ...traces]) expect((await ask('/runs', trace)).status).toBe(202);
});
afterAll(() => runlake?.remove());

describe('granular usage', () => {
  it('shows new traces within seconds, those of old hours too', async () => {
    await expect
      .poll(async () => (await usage('workspace', midnightMs - 20 * dayMs, midnightMs)).usage.length, {
        timeout: 20_000,
      })
      .toBe(2);
  });

  it('counts each trace once, although each was sent twice', async () => {
    const { stride, usage: rows } = await usage('project', midnightMs - 20 * dayMs, midnightMs);
    // The length of the range decides the size of a bucket: up to 31 days, a day.
    expect(stride).toEqual({ days: 1, hours: 0 });
    // Buckets are UTC; empty ones are left out.
    expect(
      rows.map(({ time_bucket: bucket, dimensions, traces }) => [bucket, dimensions.project_name, traces]),
    ).toEqual([
      [iso(midnightMs - 14 * dayMs).replace('.000Z', 'Z'), 'backoffice', 1],
      [iso(midnightMs - 3 * dayMs).replace('.000Z', 'Z'), 'shop', 2],
    ]);
  });

  it('has hours for ranges below a day, and weeks, months and years for longer ones', async () => {
    const strideOf = async (days: number) => (await usage('workspace', midnightMs - days * dayMs, midnightMs)).stride;
    expect((await usage('workspace', midnightMs - dayMs + 1_000, midnightMs)).stride).toEqual({ days: 0, hours: 1 });
    expect(await strideOf(32)).toEqual({ days: 7, hours: 0 });
    expect(await strideOf(94)).toEqual({ days: 30, hours: 0 });
    expect(await strideOf(367)).toEqual({ days: 365, hours: 0 });
  });

  it('sums to the same total, whatever it is grouped by', async () => {
    for (const groupBy of ['workspace', 'project', 'user', 'api_key']) {
      const { usage: rows } = await usage(groupBy, midnightMs - 20 * dayMs, midnightMs);
      expect(rows.reduce((sum, { traces }) => sum + traces, 0)).toBe(3);
    }
  });

  it('comes as CSV with the same figures', async () => {
    const query = new URLSearchParams({
      start_time: iso(midnightMs - 20 * dayMs),
      end_time: iso(midnightMs),
      workspace_ids: workspaceId,
      group_by: 'project',
    });
    const answer = await ask(`/orgs/current/billing/granular-usage/export?${query}`);
    expect(answer.headers.get('content-type')).toBe('text/csv; charset=utf-8');
    const [heads, ...lines] = (await answer.text()).trim().split('\r\n');
    // Every column is always there; those of other groupings are empty.
    expect(heads).toBe(
      'Time Bucket Start,Time Bucket End,Workspace ID,Workspace Name,Project ID,Project Name,User ID,User Email,API Key Short Key,Traces',
    );
    expect(lines.map((line) => line.split(',').at(-1))).toEqual(['1', '2']);
  });
});

describe('usage of the organisation', () => {
  it('is one figure for the whole range, with its workspaces', async () => {
    const query = `starting_on=${iso(midnightMs - 20 * dayMs)}&ending_before=${iso(midnightMs)}`;
    expect(await (await ask(`/orgs/current/billing/usage?${query}`)).json()).toMatchObject([
      { billable_metric_name: 'Traces', value: 3, groups: { [workspaceId]: 3 } },
    ]);
  });
});

describe('what lasts', () => {
  it('keeps the counts of a project that is deleted, under its name', async () => {
    const [project] = (await (await ask('/sessions?name=backoffice')).json()) as [{ id: string }];
    const deleted = await fetch(`${runlake.url}/api/v1/sessions/${project.id}`, {
      method: 'DELETE',
      headers: { 'x-api-key': runlake.apiKey },
    });
    expect(deleted.status).toBe(200);
    const { usage: rows } = await usage('project', midnightMs - 20 * dayMs, midnightMs);
    expect(rows[0]).toMatchObject({ dimensions: { project_name: 'backoffice' }, traces: 1 });
  });
});
