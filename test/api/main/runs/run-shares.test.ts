import { randomUUID } from 'node:crypto';
import { Client } from 'langsmith';
import { Client as NewClient } from 'langsmith-0-12';
import { beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { getTenantContext } from '../../../../infra/fairness/tenant-context.ts';
import { forSuite } from '../../../for-suite.ts';
import { insertEvents, runEvent } from '../../../pipelines/runs/run-events.ts';
import { openClient } from '../../open-client.ts';
import { addKey } from '../../start-api.ts';
import { startRunsApi } from './runs.fixture.ts';

const runs = forSuite(() => startRunsApi());
let client: Client;
let [rootId, childId, grandchildId] = ['', '', ''];
/** A run of another trace in the same project. */
let otherId: string;
beforeAll(async () => {
  [rootId, childId, grandchildId] = runs.trace.map(({ runId }) => runId) as [string, string, string];
  const other = runEvent({
    tenantId: runs.ours.workspaceIds[0],
    projectId: runs.projectId,
    values: { name: 'secret' },
  });
  otherId = other.runId;
  await insertEvents(runs.api.services.clickhouse, [other]);
  client = await openClient(runs.api, runs.ours.workspaceKeys[0]);
});
beforeEach(() => runs.api.database.execute('DELETE FROM shares', []));

const ask = async (method: 'GET' | 'POST' | 'PUT' | 'DELETE', path: string, payload?: object, key?: string) => {
  const headers = key === '' ? {} : { 'x-api-key': key ?? runs.ours.workspaceKeys[0] };
  const answer = await runs.api.server.inject({ method, url: path, headers, ...(payload && { payload }) });
  return {
    status: answer.statusCode,
    text: answer.body,
    headers: answer.headers,
    body: answer.body && JSON.parse(answer.body),
  };
};
const share = async () => (await ask('PUT', `/runs/${rootId}/share`)).body.share_token as string;

/** Returns all public read requests with a token; all of them must succeed. */
const reads = (token: string) =>
  [
    ['GET', `/public/${token}/run`],
    ['GET', `/public/${token}/r`],
    ['GET', `/public/${token}/run/${grandchildId}`],
    ['GET', `/public/${token}/runs`],
    ['POST', `/public/${token}/runs/query`, {}],
    ['GET', `/v2/public/${token}/run/${childId}?selects=NAME`],
    ['POST', `/v2/public/${token}/runs/query`, {}],
  ] as const;

describe('the stock SDK', () => {
  it('shares, reads and ends the sharing by version 2', async () => {
    const { share_token = '' } = await client.runs.share.create(rootId, {
      session_id: runs.projectId,
      trace_id: rootId,
    });
    const stranger = await openClient(runs.api, 'none');
    const { items } = await stranger.public.runs.query(share_token, {
      selects: ['ID', 'NAME', 'START_TIME', 'REFERENCE_DATASET_ID'],
    });
    expect(items?.map(({ name }) => name)).toEqual(['root', 'child', 'grandchild']);
    const start_time = items?.[1]?.start_time ?? '';
    const run = await stranger.public.runs.retrieve(childId, {
      share_token,
      start_time,
      selects: ['NAME', 'ATTACHMENTS'],
    });
    expect(run).toEqual({ name: 'child' });
    const { share_url } = await client.runs.retrieve(rootId, { project_id: runs.projectId, selects: ['SHARE_URL'] });
    expect(share_url).toBe(`${await runs.api.listen()}/public/${share_token}/r`);
    expect(await (await fetch(share_url ?? '')).json()).toMatchObject({ id: rootId, name: 'root' });
    await client.runs.share.delete(rootId, { session_id: runs.projectId });
    await expect(stranger.public.runs.query(share_token, {})).rejects.toMatchObject({ status: 404 });
  });

  it.each([Client, NewClient])('lists shared runs by version 1 %#', async (ClientOfVersion) => {
    const token = await share();
    const stranger = await openClient<Client | NewClient>(runs.api, 'none', {}, ClientOfVersion);
    const list = async (options?: { runIds: string[] }) =>
      (await stranger.listSharedRuns(token, options)).map(({ id }) => id);
    expect(await list()).toEqual([grandchildId, childId, rootId]);
    expect(await list({ runIds: [childId, rootId, otherId] })).toEqual([childId, rootId]);
  });

  it('shares, reads and ends the sharing by version 1', async () => {
    const link = await client.shareRun(rootId);
    expect(await client.readRunSharedLink(rootId)).toBe(link);
    expect(await client.readRun(rootId)).toMatchObject({ share_token: link.split('/').at(-2) });
    await client.unshareRun(rootId);
    expect(await client.readRunSharedLink(rootId)).toBeUndefined();
  });
});

it('a token gives access without a key, and to the whole trace', async () => {
  const token = await share();
  for (const [method, path, payload] of reads(token)) {
    const { status, headers } = await ask(method, path, payload, '');
    expect([path, status]).toEqual([path, 200]);
    expect(headers['cache-control']).toBe('no-store');
  }
  const { body } = await ask('GET', `/public/${token}/run`, undefined, '');
  expect(body).toMatchObject({ id: rootId, name: 'root', outputs: expect.anything() });
  for (const name of ['session_id', 'app_path', 's3_urls', 'share_token']) expect(body).not.toHaveProperty(name);
});

it('the queries of a reader end when its client disconnects', async () => {
  const token = await share();
  const { clickhouse, database } = runs.api.services;
  const withoutSignal: string[] = [];
  let statements = 0;
  const note = (text: string) => {
    const context = getTenantContext();
    if (context === undefined) return;
    statements += 1;
    if (context.disconnected === undefined) withoutSignal.push(text);
  };
  const { query } = database;
  const { queryText } = clickhouse;
  const spies = [
    vi.spyOn(database, 'query').mockImplementation(((sql: string, ...more: []) => {
      note(sql);
      return query(sql, ...more);
    }) as typeof query),
    vi.spyOn(clickhouse, 'queryText').mockImplementation((statement) => {
      note(statement.sql);
      return queryText(statement);
    }),
  ];
  for (const [method, path, payload] of reads(token)) await ask(method, path, payload, '');
  for (const spy of spies) spy.mockRestore();
  expect(statements).toBeGreaterThanOrEqual(reads(token).length);
  expect(withoutSignal).toEqual([]);
});

it('the query returns pages and takes ids and filters', async () => {
  const token = await share();
  const query = async (payload: object) => (await ask('POST', `/public/${token}/runs/query`, payload, '')).body;
  const first = await query({ limit: 2 });
  expect(first.runs.map(({ id }: { id: string }) => id)).toEqual([grandchildId, childId]);
  expect((await query({ limit: 2, cursor: first.cursors.next })).runs).toMatchObject([{ id: rootId }]);
  expect((await query({ filter: 'eq(name, "child")' })).runs).toMatchObject([{ id: childId }]);
  expect((await query({ id: [childId, otherId] })).runs).toMatchObject([{ id: childId }]);
});

it('the queries with a filter are limited, however the token is spelt, which is not stored', async () => {
  const token = await share();
  /** The token with some of its digits in upper case. */
  const spell = (number: number) =>
    token.replace(/[a-f]/g, (digit, at: number) => ((number >> (at % 6)) & 1 ? digit.toUpperCase() : digit));
  const statuses = (payload: object, requests: number) =>
    Promise.all(
      Array.from({ length: requests }, async (_, number) => {
        return (await ask('POST', `/public/${spell(number)}/runs/query`, payload, '')).status;
      }),
    );
  expect(await statuses({ filter: 'eq(name, "child")' }, 40)).toEqual(expect.arrayContaining([200, 429]));
  expect(await statuses({}, 12)).not.toContain(429);
  const counts = await runs.api.database.query<{ key: string }>('SELECT key FROM rate_limits', []);
  expect(counts.filter(({ key }) => key.toLowerCase().includes(token))).toEqual([]);
});

it('a token gives no access to other traces, whatever the request says', async () => {
  const token = await share();
  const attempts = [
    ['GET', `/public/${token}/run/${otherId}`, undefined, 404],
    ['GET', `/v2/public/${token}/run/${otherId}?selects=NAME`, undefined, 404],
    ['POST', `/public/${token}/runs/query`, { id: otherId }, 200],
    ['POST', `/public/${token}/runs/query`, { filter: 'or(eq(name, "secret"), eq(name, "root"))' }, 200],
    ['POST', `/public/${token}/runs/query`, { session: [runs.projectId], trace: otherId }, 200],
    ['POST', `/v2/public/${token}/runs/query`, { trace_id: otherId, selects: ['NAME'] }, 200],
  ] as const;
  for (const [method, path, payload, status] of attempts) {
    const answer = await ask(method, path, payload, '');
    expect([path, answer.status]).toEqual([path, status]);
    expect(answer.text).not.toMatch(`secret`);
  }
  expect((await ask('GET', `/runs/${rootId}`, undefined, token)).status).toBe(401);
});

it.each(['APP_PATH', 'ATTACHMENTS', 'SHARE_URL', 'LS_USER_ID'])('a token gives no access to %s', async (name) => {
  const token = await share();
  const select = (names: string) => ask('GET', `/v2/public/${token}/run/${rootId}?${names}`, undefined, '');
  expect((await select(`selects=${name}`)).body).toEqual({ id: rootId });
  expect((await select(`selects=${name}&selects=NAME`)).body).toEqual({ name: 'root' });
  const { body } = await ask('POST', `/v2/public/${token}/runs/query`, { selects: [name] }, '');
  expect(body).toEqual({ items: [{ id: rootId }, { id: childId }, { id: grandchildId }] });
  expect((await select('selects=NONE')).status).toBe(422);
});

describe('a token is invalid at once', () => {
  const check = async (token: string) => {
    for (const [method, path, payload] of reads(token)) {
      expect([path, (await ask(method, path, payload, '')).status]).toEqual([path, 404]);
    }
  };
  it.each(['/runs', '/v2/runs'])('when DELETE %s/{id}/share ends it, also by the id of a child', async (path) => {
    const token = await share();
    expect((await ask('DELETE', `${path}/${grandchildId}/share`)).status).toBe(path === '/runs' ? 200 : 204);
    await check(token);
    expect(await share()).not.toBe(token);
  });

  it.each(['projects', 'workspaces'])('when its row of %s is deleted', async (table) => {
    const token = await share();
    const id = table === 'projects' ? runs.projectId : runs.ours.workspaceIds[0];
    await runs.api.database.execute(`UPDATE ${table} SET deleted_at = now() WHERE id = $1`, [id]);
    const found = await Promise.all(reads(token).map(([method, path, payload]) => ask(method, path, payload, '')));
    await runs.api.database.execute(`UPDATE ${table} SET deleted_at = NULL WHERE id = $1`, [id]);
    for (const { status, text } of found) {
      expect(text).not.toContain('root');
      expect([404, 200]).toContain(status);
    }
    // Lists of a deleted project are empty.
    expect(found.filter(({ status }) => status === 200).length).toBe(table === 'projects' ? 3 : 0);
  });

  it('never was valid', () => check(randomUUID()));
});

it('a trace keeps its token, whichever of its runs is named, and a client cannot choose it', async () => {
  const chosen = randomUUID();
  const first = await ask('PUT', `/runs/${childId}/share`, { run_id: childId, share_token: chosen });
  expect(first.body).toEqual({ run_id: childId, share_token: expect.not.stringContaining(chosen) });
  const second = await ask('POST', `/v2/runs/${rootId}/share`, {});
  expect(second.body.share_token).toBe(first.body.share_token);
  const [row] = await runs.api.database.query<object>('SELECT * FROM shares', []);
  expect(JSON.stringify(row)).not.toContain(first.body.share_token);
});

it('sharing needs its permission, and the run', async () => {
  const [workspaceId] = runs.ours.workspaceIds;
  const { id: organizationId, userId } = runs.ours;
  const reader = await addKey({
    database: runs.api.database,
    organizationId,
    userId,
    workspaceIds: [workspaceId],
    permissions: ['runs:read', 'runs:write'],
  });
  const attempts = [
    ['PUT', `/runs/${rootId}/share`],
    ['DELETE', `/runs/${rootId}/share`],
    ['POST', `/v2/runs/${rootId}/share`, {}],
    ['DELETE', `/v2/runs/${rootId}/share`],
  ] as const;
  for (const [method, path, payload] of attempts) {
    expect([path, (await ask(method, path, payload, reader)).status]).toEqual([path, 403]);
  }
  expect((await ask('GET', `/runs/${rootId}/share`, undefined, reader)).body).toBeNull();
  expect((await ask('PUT', `/runs/${randomUUID()}/share`)).status).toBe(404);
  expect((await ask('POST', `/v2/runs/${rootId}/share`, { session_id: randomUUID() })).status).toBe(404);
  expect((await ask('POST', `/v2/runs/${rootId}/share`, { trace_id: randomUUID() })).status).toBe(404);
  expect((await ask('PUT', '/runs/x/share')).status).toBe(422);
  expect((await ask('GET', '/public/x/run', undefined, '')).status).toBe(422);
});
