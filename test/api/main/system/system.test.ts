import { expect, it } from 'vitest';
import { topics } from '../../../../schemas/topics.ts';
import { forSuite } from '../../../for-suite.ts';
import { addOrganization, startApi } from '../../start-api.ts';

const api = forSuite(() => startApi());
const operator = forSuite(() => addOrganization(api.database, 'operator'));
const tenant = forSuite(() => addOrganization(api.database, 'tenant'));

const getSystem = async () => (await api.ask(operator.adminKey, 'GET', '/api/v1/system')).body;
const replay = (payload: object, key = operator.adminKey) =>
  api.ask(key, 'POST', '/api/v1/system/dead-letters/replay', payload);

it('shows the operator what doctor checks', async () => {
  const system = await getSystem();
  expect(system.version).toBe('0.1.0');
  const checks = new Map(system.checks.map((check: { name: string }) => [check.name, check]));
  expect(checks.get('Postgres')).toEqual({
    ...{ name: 'Postgres', is_ok: true, message: expect.stringMatching(/^release \d+/), remedy: null },
  });
  expect(checks.get('ClickHouse')).toMatchObject({ is_ok: true, message: expect.stringMatching(/^release \d+/) });
  expect(checks.get('Schema')).toMatchObject({ is_ok: true, message: 'matches this release' });
  expect(checks.get('Deletions')).toMatchObject({ is_ok: true, message: 'no request to delete traces is waiting' });
  expect(system.freshness.usage_delay_seconds).toBe(0);
  expect(system.dead_letters.waiting.map(({ topic }: { topic: string }) => topic).sort()).toEqual(
    topics.map(({ name }) => name).sort(),
  );
});

it('shows a check that fails with its remedy, and no password', async () => {
  const broken = await startApi({
    config: { redisUrl: undefined },
    services: {},
  });
  const { adminKey } = await addOrganization(broken.database, 'broken');
  await broken.database.execute('DELETE FROM runlake_migrations WHERE version = 21');
  const { body } = await broken.ask(adminKey, 'GET', '/api/v1/system');
  expect(body.checks.find(({ name }: { name: string }) => name === 'Schema')).toEqual({
    ...{ name: 'Schema', is_ok: false, remedy: expect.stringContaining('stop it, make a backup') },
    message: expect.stringContaining('0021_audit_logs'),
  });
  expect(JSON.stringify(body)).not.toMatch(/postgres:\/\/|password/);
  await broken.close();
});

it('shows deletions that are overdue', async () => {
  const age = async (interval: string) => {
    await api.database.execute(
      `INSERT INTO trace_changes (kind, tenant_id, requested_at, due_at)
       VALUES ('delete', gen_random_uuid(), now() - $1::interval, now() + interval '1 hour')`,
      [interval],
    );
    const { checks } = await getSystem();
    return checks.find(({ name }: { name: string }) => name === 'Deletions');
  };
  expect(await age('5 hours')).toMatchObject({ is_ok: true, message: '1 requests are in flight' });
  expect(await age('7 hours')).toMatchObject({
    ...{ is_ok: false, remedy: expect.stringContaining('every replica of ClickHouse') },
    message: expect.stringMatching(/^1 requests to delete traces are not complete; the oldest is of 20\d\d-/),
  });
  await api.database.execute('DELETE FROM trace_changes');
});

it('shows new revisions that no host has claimed', async () => {
  const { body } = await api.ask(tenant.adminKey, 'POST', '/v2/deployments', {
    ...{ name: 'waits', source: 'github', source_config: { repo_url: 'https://example.com/waits.git' } },
    ...{ source_revision_config: { repo_ref: 'main' }, secrets: [] },
  });
  const findCheck = async () => (await getSystem()).checks.find(({ name }: { name: string }) => name === 'Deployments');
  expect(await findCheck()).toMatchObject({ is_ok: true, message: 'no revision waits for a host' });
  const change = (set: string) =>
    api.database.execute(`UPDATE deployment_revisions SET ${set} WHERE id = $1`, [body.latest_revision_id]);
  await change("created_at = now() - interval '31 seconds'");
  expect(await findCheck()).toMatchObject({
    ...{ is_ok: false, message: 'no host has claimed a new revision.' },
    remedy: expect.stringContaining('`runlake agents` without RUNLAKE_AGENTS_FILE'),
  });
  await change('fence = 1');
  expect(await findCheck()).toMatchObject({ is_ok: true });
});

it('lists dead letters, and replays each once', async () => {
  const [topic] = topics;
  const { log } = api.services.system;
  const id = '0b4e2f9a-4f0e-4b57-9b0a-1d9a4a3f6c11';
  await api.ask(operator.adminKey, 'POST', '/runs', { id, name: 'refused', run_type: 'chain', inputs: {} });
  await api.settled();
  const record = { partition: 0, offset: 7, key: Buffer.from('key'), value: Buffer.from('unreadable'), headers: {} };
  await log.deadLetter(topic!, { ...record, timestampMs: Date.now() } as never, 'it is unreadable', 'framing');
  const { dead_letters } = await getSystem();
  expect(dead_letters.newest).toMatchObject([
    { topic: topic!.name, reason: 'it is unreadable', step: 'framing', size_bytes: 10, replayed_at: null },
  ]);
  expect(dead_letters.waiting).toContainEqual({ topic: topic!.name, events: 1 });
  const [{ id: recordId }] = dead_letters.newest;
  const refused = await replay({ ids: [recordId, recordId, `${topic!.name}/missing`] });
  expect(refused.body).toEqual({
    replayed: [],
    refused: [
      { id: recordId, reason: expect.stringContaining('cannot be read') },
      { id: `${topic!.name}/missing`, reason: 'no such record' },
    ],
  });
  const forced = await replay({ ids: [recordId], force: true });
  expect(forced.body).toEqual({ replayed: [recordId], refused: [] });
  expect((await getSystem()).dead_letters.newest.at(-1).replayed_at).toEqual(expect.any(String));
});

it.each([
  [{}, 422],
  [{ ids: [] }, 422],
  [{ ids: Array.from({ length: 1_001 }, String) }, 422],
])('refuses to replay %j', async (payload, status) => {
  expect((await replay(payload)).status).toBe(status);
});

it('is closed to other organisations and to keys without the permission', async () => {
  for (const key of [tenant.adminKey, operator.workspaceKeys[0]]) {
    expect((await api.ask(key, 'GET', '/api/v1/system')).status).toBe(403);
    expect((await replay({ ids: ['run-events/1'] }, key)).status).toBe(403);
  }
});
