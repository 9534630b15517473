import { randomUUID } from 'node:crypto';
import { Client } from 'langsmith-0-12';
import { describe, expect, it, onTestFinished } from 'vitest';
import { computeLifetime } from '../../../pipelines/retention/lifetimes.ts';
import { openClient } from '../../api/open-client.ts';
import { addOrganization, startApi } from '../../api/start-api.ts';
import { forSuite } from '../../for-suite.ts';
import { openRetention } from './retention-under-test.ts';

const under = forSuite(() => openRetention());
const client = forSuite(() => openClient(under.api, under.key, {}, Client));

const daySeconds = 86_400;
const addProject = async (body: object) => (await under.ask('POST', '/sessions', { name: randomUUID(), ...body })).body;
const readRun = async (id: string) => (await under.ask('GET', `/runs/${id}`)).body;

describe('longlived_ttl_days of a project', () => {
  it('is set, kept, changed and removed by the stock client', async () => {
    const made = await client.sessions.create({ name: 'own days', longlived_ttl_days: 30 });
    expect(made).toMatchObject({ longlived_ttl_days: 30, trace_tier: null });
    const id = String(made.id);
    expect(await client.sessions.update(id, { trace_tier: 'shortlived' })).toMatchObject({ longlived_ttl_days: 30 });
    expect(await client.sessions.update(id, { longlived_ttl_days: 60 })).toMatchObject({ longlived_ttl_days: 60 });
    expect(await client.sessions.retrieve(id)).toMatchObject({ longlived_ttl_days: 60, trace_tier: 'shortlived' });
    const upsert = { name: 'own days', description: 'd', longlived_ttl_days: null };
    expect((await under.ask('POST', '/sessions?upsert=true', upsert)).body).toMatchObject({ longlived_ttl_days: 60 });
    expect(await client.sessions.update(id, { longlived_ttl_days: null })).toMatchObject({ longlived_ttl_days: null });
  });

  it('is the lifetime of longlived traces, with their attachments, and not of shortlived ones', async () => {
    const longlived = await under.sendTrace((await addProject({ longlived_ttl_days: 30 })).id, 10);
    expect(await readRun(longlived.childId)).toMatchObject({ trace_tier: 'longlived', ttl_seconds: 30 * daySeconds });
    const rows = `SELECT DISTINCT expires_at FROM
      (SELECT id, expires_at FROM runs UNION ALL SELECT run_id, expires_at FROM attachments)
      WHERE id IN ('${longlived.traceId}', '${longlived.childId}')`;
    expect(await under.sql(rows)).toHaveLength(1);
    const short = { trace_tier: 'shortlived', longlived_ttl_days: 30 };
    const { childId } = await under.sendTrace((await addProject(short)).id, 10);
    expect(await readRun(childId)).toMatchObject({ trace_tier: 'shortlived', ttl_seconds: 14 * daySeconds });
  });

  it('is the lifetime of a trace that is kept', async () => {
    const project = await addProject({ trace_tier: 'shortlived', longlived_ttl_days: 30 });
    const { traceId, childId } = await under.sendTrace(project.id, 10);
    expect((await under.ask('POST', '/runs/keep', { session_id: project.id, trace_ids: [traceId] })).status).toBe(200);
    await under.change();
    expect(await readRun(childId)).toMatchObject({ trace_tier: 'longlived', ttl_seconds: 30 * daySeconds });
  });

  it.each([
    ['0', 0, 'longlived_ttl_days'],
    ['a fraction', 1.5, 'longlived_ttl_days'],
    ['text', '30', 'longlived_ttl_days'],
    ['more than any setting', 40_000, 'longlived_ttl_days'],
    ['fewer than shortlived traces have', 13, '14 to 400 days'],
    ['more than the installation keeps', 401, '14 to 400 days'],
  ])('cannot be %s', async (_, longlived_ttl_days, problem) => {
    const created = await under.ask('POST', '/sessions', { name: randomUUID(), longlived_ttl_days });
    expect(created.status).toBe(422);
    expect(JSON.stringify(created.body)).toContain(problem);
    const { id } = await addProject({});
    const changed = await under.ask('PATCH', `/sessions/${id}`, { longlived_ttl_days });
    expect([changed.status, (await under.ask('GET', `/sessions/${id}`)).body.longlived_ttl_days]).toEqual([422, null]);
  });

  it('is refused where nothing expires', async () => {
    const api = await startApi();
    onTestFinished(() => api.close());
    const { adminKey } = await addOrganization(api.database, 'forever');
    const body = { name: 'p', longlived_ttl_days: 30 };
    expect(await api.ask(adminKey, 'POST', '/sessions', body)).toMatchObject({
      status: 422,
      body: { code: 'RETENTION_OUT_OF_RANGE', remedy: expect.stringContaining('RUNLAKE_RETENTION_LONGLIVED_DAYS') },
    });
  });
});

it.each([
  ['lowered below the days of a project', { retentionLonglivedDays: 20 }, 20],
  ['removed', {}, undefined],
  ['raised for shortlived traces', { retentionShortlivedDays: 40, retentionLonglivedDays: 50 }, 40],
])('follows the settings when they are %s', (_, config, days) => {
  const settings = { retentionShortlivedDays: undefined, retentionLonglivedDays: undefined, ...config };
  const { expiresAtSeconds } = computeLifetime(settings, { tier: 'longlived', longlivedDays: 30 }, 0);
  expect(expiresAtSeconds).toBe(days === undefined ? 4_102_444_800 : days * daySeconds);
});
