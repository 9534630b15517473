import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { startRunsApi } from './runs.fixture.ts';

const runs = forSuite(() => startRunsApi());
it.each(['', '/api', '/api/v1'])('%s/runs/{id} returns the whole run with its original values', async (prefix) => {
  const { status, type, text, body } = await runs.ask({ url: `${prefix}/runs/${runs.trace[0].runId}` });
  expect([status, type]).toEqual([200, 'application/json; charset=utf-8']);
  expect(text).toContain('"outputs":{"n":12345678901234567890}');
  expect(body).toMatchObject({
    id: runs.trace[0].runId,
    name: 'root',
    session_id: runs.projectId,
    trace_id: runs.trace[0].runId,
    dotted_order: runs.trace[0].dottedOrder,
    child_run_ids: [runs.trace[1].runId, runs.trace[2].runId],
    direct_child_run_ids: [runs.trace[1].runId],
    serialized: { lc: 1 },
    execution_order: 1,
  });
});

it('accepts upper-case ids', async () => {
  expect((await runs.ask({ url: `/runs/${runs.trace[0].runId.toUpperCase()}` })).body.id).toBe(runs.trace[0].runId);
});

it('accepts the parameters that clients send', async () => {
  const query = `session_id=${runs.projectId}&start_time=2026-03-05T12:00:00&exclude_s3_stored_attributes=true&include_messages=false`;
  const { status, body } = await runs.ask({ url: `/runs/${runs.trace[0].runId}?${query}&exclude_serialized=true` });
  expect(status).toBe(200);
  expect(body).not.toHaveProperty('serialized');
});

it.each([
  ['a malformed id', () => '/runs/1', 422],
  ['SQL', () => `/runs/${encodeURIComponent("' OR 1=1 --")}`, 422],
  ['an unknown id', () => `/runs/${randomUUID()}`, 404],
  ['another project', () => `/runs/${runs.trace[0].runId}?session_id=${randomUUID()}`, 404],
  ['a malformed project id', () => `/runs/${runs.trace[0].runId}?session_id=x`, 422],
  ['an invalid time', () => `/runs/${runs.trace[0].runId}?start_time=now`, 422],
  ['messages', () => `/runs/${runs.trace[0].runId}?include_messages=true`, 400],
])('%s', async (_name, url, status) => {
  const answer = await runs.ask({ url: url() });
  expect(answer.status).toBe(status);
  expect(answer.body).toHaveProperty('detail');
});

it('responds 404 to other workspaces, and 403 to keys without the permission', async () => {
  const url = `/runs/${runs.trace[0].runId}`;
  expect((await runs.ask({ url, key: runs.theirs.workspaceKeys[0] })).status).toBe(404);
  expect((await runs.ask({ url, key: runs.ours.workspaceKeys[1] })).status).toBe(404);
  expect((await runs.ask({ url, key: runs.keyWithoutRunsRead })).status).toBe(403);
  expect((await runs.ask({ url, key: 'none' })).status).toBe(401);
});

it('responds 404 for a run of a deleted project', async () => {
  const { database } = runs.api;
  await database.execute('UPDATE projects SET deleted_at = now() WHERE id = $1', [runs.projectId]);
  expect((await runs.ask({ url: `/runs/${runs.trace[0].runId}` })).status).toBe(404);
  await database.execute('UPDATE projects SET deleted_at = NULL WHERE id = $1', [runs.projectId]);
});
