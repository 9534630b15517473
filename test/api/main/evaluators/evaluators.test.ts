import { randomUUID } from 'node:crypto';
import { Client as NewClient } from 'langsmith-0-12';
import { expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { openClient } from '../../open-client.ts';
import { addOrganization, startApi } from '../../start-api.ts';

const api = forSuite(() => startApi());
const acme = forSuite(() => addOrganization(api.database, 'acme'));

const client = forSuite(() => openClient(api, acme.adminKey, { autoBatchTracing: false }));
const newClient = forSuite(() => openClient(api, acme.adminKey, { autoBatchTracing: false }, NewClient));

const url = '/v1/platform/evaluators';
const ask = (method: 'GET' | 'POST' | 'PATCH', path: string, payload?: object) =>
  api.ask(acme.adminKey, method, path, payload);

it('the stock SDK creates, reads, lists, changes and deletes evaluators', async () => {
  const created = await client.evaluators.create({
    name: 'length',
    type: 'code',
    code_evaluator: { code: 'def perform_eval(run): return {}' },
  });
  const evaluator = created.evaluator!;
  expect(evaluator).toMatchObject({
    name: 'length',
    type: 'code',
    tenant_id: acme.workspaceIds[0],
    created_by: acme.userId,
    code_evaluator: { code: 'def perform_eval(run): return {}', language: 'python', evaluator_id: evaluator.id },
  });
  const judge = await client.evaluators.create({
    name: 'judge',
    type: 'llm',
    llm_evaluator: { prompt_repo_handle: 'verdict', variable_mapping: { input: 'inputs.q' } },
  });
  const id = evaluator.id!;
  expect(await client.evaluators.retrieve(id)).toEqual(evaluator);
  const changed = await client.evaluators.update(id, { name: 'words', code_evaluator: { code: 'pass' } });
  expect(changed.evaluator).toMatchObject({ name: 'words', code_evaluator: { code: 'pass', language: 'python' } });

  const names = [];
  for await (const each of client.evaluators.list()) names.push(each.name);
  expect(names).toEqual(['judge', 'words']);
  expect((await ask('GET', `${url}?type=llm`)).body).toMatchObject({ evaluators: [{ name: 'judge' }], total: 1 });
  expect((await ask('GET', `${url}?name_contains=WOR`)).body).toMatchObject({ evaluators: [{ name: 'words' }] });

  await client.evaluators.delete(id, { delete_run_rules: true });
  await expect(client.evaluators.retrieve(id)).rejects.toThrow(/404/);
  await expect(client.evaluators.delete(id)).rejects.toThrow(/404/);
  const absent = randomUUID();
  expect(await client.evaluators.bulkDelete({ evaluator_ids: [judge.evaluator!.id!, absent] })).toEqual({
    succeeded: [judge.evaluator!.id],
    failed: [{ id: absent, error: 'Evaluator not found.' }],
  });
});

it('the stock SDK gets every field back', async () => {
  const code = {
    code: 'def perform_eval(run): return {}',
    language: 'python',
    dependencies: 'numpy==2.0',
    code_evaluator_input: 'trajectory' as const,
    require_attachments: true,
    advanced_features_enabled: true,
    workspace_secrets_keys: ['TOKEN'],
    managed_code_evaluator_key: 'voice_metrics' as const,
    managed_code_evaluator_settings: { latency: { is_enabled: true, key_name: 'l' } },
  };
  const metadata = { team: 'é', nested: { a: [1] }, nul: '\u0000' };
  const made = await newClient.evaluators.create({ name: 'code', type: 'code', code_evaluator: code, metadata });
  const id = made.evaluator!.id!;
  expect(await newClient.evaluators.retrieve(id)).toEqual(made.evaluator);
  expect(made.evaluator).toMatchObject({ metadata, code_evaluator: { ...code, evaluator_id: id } });
  const change = { code_evaluator_input: null, workspace_secrets_keys: [] };
  const changed = await newClient.evaluators.update(id, { code_evaluator: change });
  expect(changed.evaluator).toMatchObject({ metadata, code_evaluator: { ...code, ...change } });

  const llm = { prompt_repo_handle: 'verdict', playground_settings_id: randomUUID() };
  const judge = await newClient.evaluators.create({ name: 'llm', type: 'llm', llm_evaluator: llm });
  expect(judge.evaluator).toMatchObject({ metadata: null, llm_evaluator: llm });
  const more = { num_few_shot_examples: 3, use_corrections_dataset: true };
  const judgeId = judge.evaluator!.id!;
  await newClient.evaluators.update(judgeId, { llm_evaluator: more, metadata: { team: 'b' } });
  const read = await newClient.evaluators.retrieve(judgeId);
  expect(read).toMatchObject({ metadata: { team: 'b' }, llm_evaluator: { ...llm, ...more } });

  const find = async (query: object) => {
    const names = [];
    for await (const { name } of newClient.evaluators.list({ metadata: JSON.stringify(query) })) names.push(name);
    return names;
  };
  expect(await find({ nested: { a: [1] }, nul: '\u0000' })).toEqual(['code']);
  expect(await find({ team: 'b' })).toEqual(['llm']);
  await newClient.evaluators.update(judgeId, { metadata: null });
  expect((await newClient.evaluators.retrieve(judgeId)).metadata).toBeNull();
  expect(await find({ team: 'b' })).toEqual([]);
  await newClient.evaluators.bulkDelete({ evaluator_ids: [id, judgeId] });
});

it.each([
  [{ name: 'x', type: 'code', code_evaluator: { code_evaluator_input: 'run' } }, 422],
  [{ name: 'x', type: 'llm', llm_evaluator: { num_few_shot_examples: -1 } }, 422],
  [{ name: 'x', type: 'llm', llm_evaluator: {}, metadata: [1] }, 422],
  [{ name: 'x', type: 'code' }, 400],
  [{ name: 'x', type: 'llm', code_evaluator: { code: '' } }, 400],
  [{ name: 'x', type: 'code', code_evaluator: {}, llm_evaluator: {} }, 400],
  [{ name: '', type: 'code', code_evaluator: {} }, 422],
  [{ name: 'x', type: 'other', code_evaluator: {} }, 422],
])('%j is refused', async (payload, status) => {
  expect((await ask('POST', url, payload)).status).toBe(status);
});

it('keeps its type', async () => {
  const made = await ask('POST', url, { name: 'x', type: 'code', code_evaluator: { code: 'a' } });
  const answer = await ask('PATCH', `${url}/${made.body.evaluator.id}`, { llm_evaluator: {} });
  expect([answer.status, answer.body.error]).toEqual([400, 'The evaluator has the type code.']);
});
