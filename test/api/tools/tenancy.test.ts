import { beforeAll, describe, expect, it } from 'vitest';
import { tools } from '../../../api/tools/tool-server.ts';
import { forSuite } from '../../for-suite.ts';
import { addExport } from '../add-export.ts';
import { addKey, addOrganization } from '../start-api.ts';
import { childRun, rootRun, sendRuns } from './send-runs.ts';
import { startToolServer } from './start-tools.ts';

/**
 * No tool, resource or prompt gives access to another workspace. Everything of the victim, the first workspace of the
 * owner, contains the word `okapi`. The strangers, the admin of another organisation and the key of the second workspace,
 * call every tool with the victim's names and ids.
 */
const server = forSuite(() => startToolServer());
let strangers: readonly string[];
let victim: Readonly<Record<'runId' | 'projectId' | 'datasetId' | 'exampleId' | 'workspaceId', string>>;

beforeAll(async () => {
  const { api, owner } = server;
  const [key] = owner.workspaceKeys;
  const ask = async (url: string, payload: object) => (await api.ask(key, 'POST', url, payload)).body;
  await api.ask(owner.adminKey, 'POST', '/settings/handle', { tenant_handle: 'okapi-handle' });
  const root = rootRun('okapi', {
    name: 'okapi',
    inputs: { messages: [{ role: 'user', content: 'okapi' }] },
    extra: { metadata: { thread_id: 'okapi' } },
  });
  await sendRuns(server, [root, childRun(root, 'okapi', { run_type: 'llm', name: 'okapi', extra: root.extra })]);
  const projectId = (await api.ask(key, 'GET', '/sessions?name=okapi')).body[0].id as string;
  const { id: datasetId } = await ask('/datasets', { name: 'okapi', description: 'okapi' });
  const { id: exampleId } = await ask('/examples', { dataset_id: datasetId, inputs: { secret: 'okapi' } });
  await ask('/sessions', { name: 'okapi experiment', reference_dataset_id: datasetId });
  await ask('/repos', { repo_handle: 'okapi', is_public: true, description: 'okapi' });
  await ask('/commits/-/okapi', { manifest: { template: 'okapi {name}' } });
  await addExport(api.database, { workspaceId: owner.workspaceIds[0], projectId, word: 'okapi' });
  victim = { runId: root.id, projectId, datasetId, exampleId, workspaceId: owner.workspaceIds[0] };
  const other = await addOrganization(api.database, 'other');
  strangers = [other.adminKey, owner.workspaceKeys[1]];
});

const range = { starting_on: '2020-01-01', ending_before: '2100-01-01' };
const granular = { start_time: '2026-01-01T00:00:00Z', end_time: '2100-01-01T00:00:00Z' };

/** One entry for each tool: calls with the names and ids of the victim. A tool without an entry fails the test. */
const attempts: Readonly<Record<string, (v: typeof victim) => readonly Record<string, unknown>[]>> = {
  get_thread_history: (v) =>
    ['okapi', v.projectId].map((project_name) => ({ thread_id: 'okapi', project_name, page_number: 1 })),
  list_prompts: () => [{ is_public: true }, {}],
  get_prompt_by_name: () => [{ prompt_name: 'okapi' }, { prompt_name: 'okapi-handle/okapi' }],
  fetch_runs: (v) =>
    ['okapi', v.projectId].flatMap((project_name) => [
      { project_name, limit: 10 },
      { project_name, limit: 10, trace_id: v.runId },
    ]),
  get_run: (v) => [{ run_id: v.runId }],
  list_projects: (v) => [
    { limit: 100 },
    { project_name: 'okapi' },
    { reference_dataset_id: v.datasetId, more_info: true },
  ],
  get_project_stats: (v) => [{ project_name: 'okapi' }, { project_name: v.projectId }],
  list_datasets: (v) => [{}, { dataset_ids: [v.datasetId] }, { dataset_name: 'okapi' }],
  list_examples: (v) => [{ dataset_id: v.datasetId }, { example_ids: [v.exampleId] }, { dataset_name: 'okapi' }],
  read_dataset: (v) => [{ dataset_id: v.datasetId }, { dataset_name: 'okapi' }],
  read_example: (v) => [{ example_id: v.exampleId }],
  list_experiments: (v) => [{ reference_dataset_id: v.datasetId }, { reference_dataset_name: 'okapi' }],
  list_exports: (v) => [{}, { project_name: v.projectId }],
  get_billing_usage: (v) => [range, { ...range, workspace: v.workspaceId }],
  query_usage: (v) => [granular, { ...granular, workspaces: [v.workspaceId], group_by: 'project' }],
  push_prompt: () => [],
  create_dataset: () => [],
  update_examples: () => [],
  run_experiment: () => [],
};

/** Errors may repeat what the stranger sent. */
function withoutSent(text: string, args: Record<string, unknown>): string {
  const sent = Object.values(args).flat().map(String);
  return sent.reduce((rest, each) => rest.replaceAll(each, ''), text);
}

describe.each(tools.map(({ name }) => name))('%s', (name) => {
  it('shows nothing of another workspace', async () => {
    expect(attempts).toHaveProperty(name);
    for (const args of attempts[name]?.(victim) ?? []) {
      const seen = await server.call(name, args);
      expect(JSON.stringify(seen), JSON.stringify(args)).toMatch(
        /okapi|traces|usage|error|exports|"prompts":|"projects":/,
      );
      for (const key of strangers) {
        const result = await server.call(name, args, key);
        expect(withoutSent(JSON.stringify(result), args), JSON.stringify(args)).not.toContain('okapi');
        expect(withoutSent(JSON.stringify(result), args)).not.toContain(victim.workspaceId);
      }
    }
  });

  it('needs the permissions of the main API', async () => {
    const { api, owner } = server;
    const base = { database: api.database, organizationId: owner.id, userId: owner.userId };
    const powerless = await addKey({ ...base, workspaceIds: [owner.workspaceIds[0]], permissions: [] });
    for (const args of attempts[name]?.(victim) ?? []) {
      const { error } = await server.call(name, args, powerless);
      expect(error).toMatch(/The API key lacks the permission '[a-z-]+:read'\./);
    }
  });
});

describe('resources and prompts', () => {
  it('show nothing of another workspace', async () => {
    const uris = [
      `runlake://runs/${victim.runId}`,
      'runlake://prompts/okapi',
      'runlake://prompts/okapi-handle%2Fokapi',
      `runlake://datasets/${victim.datasetId}`,
      'runlake://datasets/okapi',
    ];
    const owner = await server.connect();
    for (const uri of uris) expect(JSON.stringify(await owner.readResource({ uri }))).toContain('okapi');
    for (const key of strangers) {
      const client = await server.connect(key);
      expect(JSON.stringify([await client.listResources(), await client.listPrompts()])).not.toContain('okapi');
      for (const uri of uris) await expect(client.readResource({ uri })).rejects.toMatchObject({ code: -32_002 });
      await expect(client.getPrompt({ name: 'okapi', arguments: { name: 'x' } })).rejects.toThrow(/not found/);
    }
  });

  it('need the permissions of the main API', async () => {
    const { api, owner } = server;
    const base = { database: api.database, organizationId: owner.id, userId: owner.userId };
    const client = await server.connect(
      await addKey({ ...base, workspaceIds: [owner.workspaceIds[0]], permissions: [] }),
    );
    expect(await client.listResources()).toMatchObject({ resources: [] });
    await expect(client.listPrompts()).rejects.toThrow(/lacks the permission 'prompts:read'/);
    await expect(client.readResource({ uri: `runlake://runs/${victim.runId}` })).rejects.toThrow(
      /lacks the permission/,
    );
  });
});
