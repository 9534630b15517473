import { randomUUID } from 'node:crypto';
import { Client } from 'langsmith';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { asking } from '../../ask.ts';
import { type ApiUnderTest, addOrganization, type OrganizationUnderTest, startApi } from '../../start-api.ts';

let api: ApiUnderTest;
let acme: OrganizationUnderTest;
let client: Client;

beforeAll(async () => {
  api = await startApi({ config: { patchWaitMs: 0 } });
  acme = await addOrganization(api.database, 'acme');
  const apiUrl = await api.server.listen({ port: 0, host: '127.0.0.1' });
  client = new Client({ apiUrl, apiKey: acme.adminKey, autoBatchTracing: false });
});
afterAll(() => api.close());

const send = asking(() => api);
const ask = (method: 'GET' | 'POST' | 'PATCH', url: string, payload?: object) =>
  send(acme.adminKey, method, url, payload);

async function listKeys(options: object = {}) {
  const keys: string[] = [];
  for await (const config of client.listFeedbackConfigs(options)) keys.push(config.feedback_key);
  return keys;
}

it('concurrent requests do not exceed the limit together', async () => {
  const { adminKey, workspaceIds } = await addOrganization(api.database, 'many');
  await api.database.execute(
    `INSERT INTO feedback_configs (workspace_id, feedback_key, feedback_config, is_lower_score_better, is_enforced)
     SELECT $1, 'key ' || n, '{"type":"freeform","min":null,"max":null,"categories":null}', false, false FROM generate_series(1, 9999) AS n`,
    [workspaceIds[0]],
  );
  const statuses = await Promise.all(
    Array.from({ length: 6 }, async (_, n) => {
      const body = { feedback_key: `new ${n}`, feedback_config: { type: 'freeform' } };
      return (await send(adminKey, 'POST', '/feedback-configs', body)).status;
    }),
  );
  expect(statuses.sort()).toEqual([200, 422, 422, 422, 422, 422]);
});

it('the stock SDK creates, lists, changes and deletes configs', async () => {
  const feedbackConfig = { type: 'continuous' as const, min: 0, max: 1 };
  const made = await client.createFeedbackConfig({ feedbackKey: 'quality', feedbackConfig });
  expect(made).toEqual({
    feedback_key: 'quality',
    feedback_config: { ...feedbackConfig, categories: null },
    tenant_id: acme.workspaceIds[0],
    is_lower_score_better: false,
    is_enforced: false,
    modified_at: expect.any(String),
  });
  expect(await client.createFeedbackConfig({ feedbackKey: 'quality', feedbackConfig })).toEqual(made);
  const other = client.createFeedbackConfig({ feedbackKey: 'quality', feedbackConfig: { ...feedbackConfig, max: 2 } });
  await expect(other).rejects.toThrow(/Another config/);

  const categories = [
    { value: 1, label: 'good' },
    { value: 0, label: 'bad' },
  ];
  await client.createFeedbackConfig({ feedbackKey: 'verdict', feedbackConfig: { type: 'categorical', categories } });
  expect(await listKeys()).toEqual(['verdict', 'quality']);
  expect(await listKeys({ feedbackKeys: ['quality', 'none'] })).toEqual(['quality']);
  expect(await listKeys({ nameContains: 'VER' })).toEqual(['verdict']);
  expect(await listKeys({ limit: 1 })).toEqual(['verdict']);

  const changed = await client.updateFeedbackConfig('quality', { isLowerScoreBetter: true });
  expect(changed).toMatchObject({ is_lower_score_better: true, feedback_config: feedbackConfig });
  await expect(client.updateFeedbackConfig('none', { isLowerScoreBetter: true })).rejects.toThrow(/not found/);
  await client.deleteFeedbackConfig('quality');
  await expect(client.deleteFeedbackConfig('quality')).rejects.toThrow(/not found/);
  expect(await listKeys()).toEqual(['verdict']);
});

it('configs that contradict themselves are refused', async () => {
  const create = async (feedback_config: object) =>
    (await ask('POST', '/feedback-configs', { feedback_key: 'odd', feedback_config })).status;
  expect(await create({ type: 'continuous', min: 2, max: 1 })).toBe(400);
  expect(await create({ type: 'categorical' })).toBe(400);
  expect(await create({ type: 'other' })).toBe(422);
  expect(await create({ type: 'freeform' })).toBe(200);
});

describe('an enforced config', () => {
  const giveFeedback = (key: string, more: object) => ask('POST', '/feedback', { run_id: randomUUID(), key, ...more });

  it.each([
    [
      'continuous',
      { type: 'continuous', min: 0, max: 1 },
      [{ score: 0 }, { score: true }, { value: 'x' }],
      [{ score: 1.5 }, { score: -1 }],
    ],
    [
      'categorical',
      { type: 'categorical', categories: [{ value: 1, label: 'good' }, { value: 0 }] },
      [{ score: 1 }, { score: false }, { value: 'good' }, {}],
      [{ score: 2 }, { value: 'bad' }],
    ],
    ['freeform', { type: 'freeform' }, [{ score: 5 }, { value: 'x' }], []],
  ])('of type %s', async (key, feedback_config, accepted, refused) => {
    await ask('POST', '/feedback-configs', { feedback_key: key, feedback_config, is_enforced: true });
    for (const values of accepted) expect((await giveFeedback(key, values)).status).toBe(200);
    for (const values of refused) {
      const answer = await giveFeedback(key, values);
      expect(answer.status).toBe(422);
      expect(JSON.stringify(answer.body)).toContain('config of its key');
    }
  });

  it('applies to changes of feedback, and ends when it is no longer enforced', async () => {
    await ask('POST', '/feedback-configs', {
      feedback_key: 'changing',
      feedback_config: { type: 'continuous', max: 1 },
      is_enforced: true,
    });
    const { id } = (await giveFeedback('changing', { score: 1 })).body;
    expect((await ask('PATCH', `/feedback/${id}`, { score: 2 })).status).toBe(422);
    expect(
      (await ask('PATCH', '/feedback-configs', { feedback_key: 'changing', is_enforced: false })).body,
    ).toMatchObject({ is_enforced: false, feedback_config: { max: 1 } });
    expect((await ask('PATCH', `/feedback/${id}`, { score: 2 })).status).toBe(200);
  });

  it('of another workspace does not apply', async () => {
    const answer = await send(acme.workspaceKeys[1], 'POST', '/feedback', {
      run_id: randomUUID(),
      key: 'continuous',
      score: 9,
    });
    expect(answer.status).toBe(200);
  });
});

it('feedback is listed by its comparative experiment', async () => {
  const comparison = randomUUID();
  const feedback = { run_id: randomUUID(), key: 'better' };
  const { id } = (await ask('POST', '/feedback', { ...feedback, comparative_experiment_id: comparison })).body;
  await ask('POST', '/feedback/eager', feedback);
  await api.settled();
  const listed = await ask('GET', `/feedback?run=${feedback.run_id}&comparative_experiment_id=${comparison}`);
  expect(listed.body).toMatchObject([{ id }]);
  expect((await ask('GET', `/feedback?run=${feedback.run_id}`)).body).toHaveLength(2);
});
