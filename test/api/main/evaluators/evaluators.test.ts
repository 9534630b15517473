import { randomUUID } from 'node:crypto';
import { Client } from 'langsmith';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { asking } from '../../ask.ts';
import { type ApiUnderTest, addOrganization, type OrganizationUnderTest, startApi } from '../../start-api.ts';

let api: ApiUnderTest;
let acme: OrganizationUnderTest;
let client: Client;

beforeAll(async () => {
  api = await startApi();
  acme = await addOrganization(api.database, 'acme');
  const apiUrl = await api.server.listen({ port: 0, host: '127.0.0.1' });
  client = new Client({ apiUrl, apiKey: acme.adminKey, autoBatchTracing: false });
});
afterAll(() => api.close());

const url = '/v1/platform/evaluators';
const send = asking(() => api);
const ask = (method: 'GET' | 'POST' | 'PATCH', path: string, payload?: object) =>
  send(acme.adminKey, method, path, payload);

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

it.each([
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
