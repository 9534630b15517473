import { randomUUID } from 'node:crypto';
import { Client as NewClient } from 'langsmith-0-12';
import { describe, expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { openClient } from '../../open-client.ts';
import { addOrganization, askAs, startApi } from '../../start-api.ts';

const api = forSuite(() => startApi({ config: { patchWaitMs: 0 } }));
const acme = forSuite(() => addOrganization(api.database, 'acme'));

const client = forSuite(() => openClient(api, acme.adminKey, { autoBatchTracing: false }));
const newClient = forSuite(() => openClient(api, acme.adminKey, { callerOptions: { maxRetries: 0 } }, NewClient));

const ask = askAs(api, acme);

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
      return (await api.ask(adminKey, 'POST', '/feedback-configs', body)).status;
    }),
  );
  expect(statuses.sort()).toEqual([200, 422, 422, 422, 422, 422]);
});

it('the stock SDK creates, lists, changes and deletes configs', async () => {
  const feedbackConfig = { type: 'continuous' as const, min: 0, max: 1 };
  const made = await client.createFeedbackConfig({ feedbackKey: 'quality', feedbackConfig });
  expect(made).toEqual({
    id: expect.any(String),
    is_first: true,
    is_deleted: false,
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

describe('the stock SDK 0.12', () => {
  const categories = [
    { value: 0, label: 'bad' },
    { value: 1, label: 'good' },
  ];
  const feedbackConfig = { type: 'categorical' as const, categories, allows_multiple_categories: true };
  const listIds = async (options: object) => {
    const ids: (string | undefined)[] = [];
    for await (const { id } of newClient.listFeedbackConfigs(options)) ids.push(id);
    return ids;
  };

  it('adds and removes categories, and keeps the others', async () => {
    await newClient.createFeedbackConfig({ feedbackKey: 'tone', feedbackConfig });
    const added = await newClient.addFeedbackCategories('tone', [{ value: 2, label: 'great' }, { value: 3 }]);
    expect(added.feedback_config).toEqual({
      type: 'categorical',
      min: null,
      max: null,
      categories: [...categories, { value: 2, label: 'great' }, { value: 3, label: null }],
      allows_multiple_categories: true,
    });
    const left = await newClient.removeFeedbackCategories('tone', [0, 3]);
    expect(left.feedback_config.categories).toEqual([categories[1], { value: 2, label: 'great' }]);
    await expect(newClient.removeFeedbackCategories('tone', [1])).rejects.toThrow(/At least 2 categories/);
    await expect(newClient.removeFeedbackCategories('tone', [7])).rejects.toThrow(/no category with the value 7/);
    await expect(newClient.addFeedbackCategories('tone', [{ value: 1 }])).rejects.toThrow(/already has a category/);
    const sameLabel = newClient.addFeedbackCategories('tone', [{ value: 9, label: 'good' }]);
    await expect(sameLabel).rejects.toThrow(/already has a category/);
    await newClient.createFeedbackConfig({ feedbackKey: 'number', feedbackConfig: { type: 'continuous' } });
    await expect(newClient.addFeedbackCategories('number', [{ value: 1 }])).rejects.toThrow(/Only a categorical/);
    const both = { feedback_key: 'tone', feedback_config: feedbackConfig, add_categories: [{ value: 5 }] };
    expect((await ask('PATCH', '/feedback-configs', both)).status).toBe(400);
  });

  it('repeats a config after the direction of its key was set', async () => {
    const config = { feedbackKey: 'directed', feedbackConfig };
    await newClient.createFeedbackConfig(config);
    const directed = await newClient.updateFeedbackConfig('directed', { isLowerScoreBetter: true });
    expect(await newClient.createFeedbackConfig(config)).toEqual(directed);
    expect(await newClient.createFeedbackConfig({ ...config, isLowerScoreBetter: true })).toEqual(directed);
    const opposite = newClient.createFeedbackConfig({ ...config, isLowerScoreBetter: false });
    await expect(opposite).rejects.toThrow(/Another config/);
    const nulls = { feedback_key: 'directed', feedback_config: feedbackConfig, is_lower_score_better: null };
    expect((await ask('POST', '/feedback-configs', nulls)).body).toEqual(directed);
  });

  it('concurrent changes of categories are all kept', async () => {
    await newClient.createFeedbackConfig({ feedbackKey: 'busy', feedbackConfig });
    const values = [10, 11, 12, 13, 14, 15];
    await Promise.all(values.map((value) => newClient.addFeedbackCategories('busy', [{ value }])));
    const [{ feedback_config } = {} as never] = (await ask('GET', '/feedback-configs?key=busy')).body;
    const stored = feedback_config.categories.map(({ value }: { value: number }) => value);
    expect(stored.sort()).toEqual([0, 1, ...values]);
  });

  it('names a config by its id, and lists the enforced ones', async () => {
    const made = await newClient.createFeedbackConfig({ feedbackKey: 'strict', feedbackConfig, isEnforced: true });
    const loose = await newClient.createFeedbackConfig({ feedbackKey: 'loose', feedbackConfig });
    const configId = made.id ?? '';
    expect(await listIds({ isEnforced: true, includeAllConfigs: true })).toEqual([configId]);
    expect(await listIds({ isEnforced: false, feedbackKeys: ['strict', 'loose'] })).toEqual([loose.id]);
    const changed = await newClient.updateFeedbackConfig('strict', { configId, isLowerScoreBetter: true });
    expect(changed).toMatchObject({ id: configId, is_lower_score_better: true, feedback_config: feedbackConfig });
    const otherKey = newClient.updateFeedbackConfig('loose', { configId, isLowerScoreBetter: true });
    await expect(otherKey).rejects.toThrow(/not found/);
    const [, stranger] = acme.workspaceKeys;
    expect((await api.ask(stranger, 'DELETE', `/feedback-configs?id=${configId}`)).status).toBe(404);
    await newClient.deleteFeedbackConfig(undefined, { configId });
    expect(await listIds({ feedbackKeys: ['strict'] })).toEqual([]);
    expect((await api.ask(acme.adminKey, 'DELETE', '/feedback-configs')).status).toBe(400);
    expect((await api.ask(acme.adminKey, 'DELETE', `/feedback-configs?id=${loose.id}&feedback_key=loose`)).status).toBe(
      400,
    );
  });
});

it('configs that contradict themselves are refused', async () => {
  const create = async (feedback_config: object) =>
    (await ask('POST', '/feedback-configs', { feedback_key: 'odd', feedback_config })).status;
  expect(await create({ type: 'continuous', min: 2, max: 1 })).toBe(400);
  expect(await create({ type: 'categorical' })).toBe(400);
  expect(await create({ type: 'freeform', allows_multiple_categories: true })).toBe(400);
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

  it('applies to feedback that both stock SDKs send in parts, and rejects only that', async () => {
    const feedbackConfig = { type: 'continuous' as const, min: 0, max: 1 };
    await newClient.createFeedbackConfig({ feedbackKey: 'in parts', feedbackConfig, isEnforced: true });
    const [bad, good] = [randomUUID(), randomUUID()];
    for (const [runId, score] of [
      [bad, 5],
      [good, 1],
    ] as const) {
      await newClient.createFeedback(runId, 'in parts', { traceId: runId, score, sessionId: randomUUID() });
    }
    await newClient.awaitPendingTraceBatches();
    await api.settled();
    expect((await ask('GET', `/feedback?run=${good}`)).body).toMatchObject([{ score: 1 }]);
    expect((await ask('GET', `/feedback?run=${bad}`)).body).toEqual([]);
  });

  it('of another workspace does not apply', async () => {
    const answer = await api.ask(acme.workspaceKeys[1], 'POST', '/feedback', {
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
