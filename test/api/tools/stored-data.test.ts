import { randomUUID } from 'node:crypto';
import { ChatPromptTemplate } from '@langchain/core/prompts';
import { describe, expect, it } from 'vitest';
import { runRollUp } from '../../../pipelines/usage/rollup.ts';
import { forSuite } from '../../for-suite.ts';
import { addExport } from '../add-export.ts';
import { addKey } from '../start-api.ts';
import { rootRun, sendRuns } from './send-runs.ts';
import { startToolServer, type ToolsUnderTest } from './start-tools.ts';

const server = forSuite(() => startToolServer());

const ask = (...request: Parameters<ToolsUnderTest['ask']>) => server.ask(...request);
const call = (name: string, args: Record<string, unknown> = {}) => server.call(name, args);
const findProject = async (name: string) => (await ask('GET', `/sessions?name=${name}`))[0].id as string;

it('a run with deeply nested inputs is shown down to some level', async () => {
  const nested = JSON.parse(`${'['.repeat(3_000)}"leaf"${']'.repeat(3_000)}`);
  const run = rootRun('nested', { inputs: { nested } });
  await sendRuns(server, [run, rootRun('nested')]);
  const page = await call('fetch_runs', { project_name: 'nested', limit: 5, max_chars_per_page: 30_000 });
  expect(page.error).toBeUndefined();
  expect(page.runs.map(({ id }: { id: string }) => id)).toContain(run.id);
  const got = await call('get_run', { run_id: run.id });
  expect(JSON.stringify(got.run.inputs)).toMatch(/nested deeper than 500 levels/);
});

describe('projects and experiments', () => {
  it('are listed in short or in full', async () => {
    await ask('POST', '/sessions', { name: 'shop one', extra: { metadata: { deep: { deployment_id: 'd-1' } } } });
    await ask('POST', '/sessions', { name: 'shop two' });
    const projects = (await call('list_projects', { project_name: 'SHOP' })).projects;
    expect(projects).toEqual([
      { name: 'shop two', project_id: await findProject('shop%20two') },
      { name: 'shop one', project_id: await findProject('shop%20one'), agent_deployment_id: 'd-1' },
    ]);
    expect((await call('list_projects', { project_name: 'shop', limit: 1 })).projects).toHaveLength(1);
    const [full] = (await call('list_projects', { project_name: 'shop two', more_info: 'true' })).projects;
    expect(full).toMatchObject({ name: 'shop two', tenant_id: server.owner.workspaceIds[0], extra: null });
    expect((await call('list_projects', { limit: 500 })).note).toBe('limit 500 was reduced to 100, the maximum.');
  });

  it('of a dataset have latency, cost and feedback', async () => {
    const dataset = await ask('POST', '/datasets', { name: 'questions' });
    const experiment = await ask('POST', '/sessions', { name: 'baseline', reference_dataset_id: dataset.id });
    const example = await ask('POST', '/examples', { dataset_id: dataset.id, inputs: { question: 1 } });
    const run = rootRun('baseline', {
      reference_example_id: example.id,
      extra: { metadata: { usage_metadata: { input_tokens: 1, output_tokens: 2, total_tokens: 3, total_cost: 0.25 } } },
      run_type: 'llm',
    });
    await sendRuns(server, [run]);
    await ask('POST', '/feedback', { run_id: run.id, key: 'correct', score: 1 });
    for (const by of [{ reference_dataset_id: dataset.id }, { reference_dataset_name: 'questions' }]) {
      const { experiments } = await call('list_experiments', by);
      expect(experiments).toMatchObject([
        {
          name: 'baseline',
          experiment_id: experiment.id,
          feedback_stats: { correct: { n: 1, avg: 1 } },
          latency_p50_seconds: 0.5,
          latency_p99_seconds: 0.5,
          total_cost: '0.25',
        },
      ]);
    }
    expect((await call('list_projects', { project_name: 'baseline' })).projects).toEqual([]);
    for (const by of [{ reference_dataset_id: dataset.id }, { reference_dataset_name: 'questions' }])
      expect((await call('list_projects', by)).projects).toEqual([{ name: 'baseline', project_id: experiment.id }]);
    const other = await ask('POST', '/datasets', { name: 'unused questions' });
    expect((await call('list_projects', { reference_dataset_id: other.id })).projects).toEqual([]);
    expect(
      (await call('list_experiments', { reference_dataset_id: dataset.id, project_name: 'none' })).experiments,
    ).toEqual([]);
    const both = { reference_dataset_id: dataset.id, reference_dataset_name: 'questions' };
    expect((await call('list_experiments', both)).error).toContain('Exactly one of');
    expect((await call('list_experiments', { reference_dataset_name: 'none' })).error).toContain(
      'Dataset none not found.',
    );
    const runs = await call('fetch_runs', { project_name: 'baseline', limit: 5, reference_example_id: example.id });
    expect(runs.runs).toMatchObject([{ id: run.id }]);
    const since = async (start: string) =>
      (await call('get_project_stats', { project_name: 'baseline', start_time: start })).stats?.run_count ?? 0;
    expect([await since('2020-01-01'), await since('2100-01-01')]).toEqual([1, 0]);
    const { stats, project_id: id } = await call('get_project_stats', { project_name: 'baseline' });
    expect([id, stats]).toMatchObject([
      experiment.id,
      { run_count: 1, latency_p50: 0.5, total_tokens: 3, error_rate: 0 },
    ]);
  });
});

describe('datasets and examples', () => {
  it('are found by each parameter', async () => {
    const schema = { type: 'object', properties: { a: { type: 'integer' } } };
    const animals = await ask('POST', '/datasets', {
      name: 'animals',
      description: 'zoo',
      inputs_schema_definition: schema,
      extra: { metadata: { area: 'zoo' } },
    });
    const chats = await ask('POST', '/datasets', { name: 'animal chats', data_type: 'chat' });
    const ids = async (args: Record<string, unknown>) =>
      (await call('list_datasets', args)).datasets.map(({ id }: { id: string }) => id);
    expect(await ids({ dataset_name: 'animals' })).toEqual([animals.id]);
    expect((await ids({ dataset_name_contains: 'ANIMAL' })).sort()).toEqual([animals.id, chats.id].sort());
    expect(await ids({ dataset_ids: JSON.stringify([chats.id]) })).toEqual([chats.id]);
    expect(await ids({ dataset_ids: [animals.id], data_type: 'kv' })).toEqual([animals.id]);
    expect(await ids({ metadata: '{"area": "zoo"}' })).toEqual([animals.id]);
    expect(await ids({ metadata: { area: 'zoo' }, limit: '1' })).toEqual([animals.id]);
    const { dataset } = await call('read_dataset', { dataset_name: 'animals' });
    expect(dataset).toEqual((await call('list_datasets', { dataset_name: 'animals' })).datasets[0]);
    expect(dataset).toMatchObject({
      id: animals.id,
      description: 'zoo',
      data_type: 'kv',
      example_count: 0,
      inputs_schema_definition: schema,
    });
    expect((await call('read_dataset', { dataset_id: randomUUID() })).error).toMatch(/^Dataset not found\./);
  });

  it('have versions, splits and attachments', async () => {
    const { id } = await ask('POST', '/datasets', { name: 'versions' });
    const add = (n: number, split: string) =>
      ask('POST', '/examples', { dataset_id: id, inputs: { n }, outputs: { n }, split });
    const first = await add(1, 'train');
    const before = first.modified_at;
    const second = await add(2, 'test');
    await ask('PATCH', `/examples/${first.id}`, { outputs: { n: 10 }, metadata: { topic: 'tax' } });
    const inputs = async (args: Record<string, unknown>) =>
      (await call('list_examples', args)).examples.map(({ inputs: { n } }: { inputs: { n: number } }) => n);
    expect((await inputs({ dataset_id: id })).sort()).toEqual([1, 2]);
    expect(await inputs({ dataset_name: 'versions', splits: '["test"]' })).toEqual([2]);
    expect(await inputs({ dataset_name: 'versions', metadata: '{"topic":"tax"}' })).toEqual([1]);
    expect(await inputs({ dataset_id: id, limit: 1, offset: '1' })).toHaveLength(1);
    expect(await inputs({ example_ids: [second.id] })).toEqual([2]);
    expect(await inputs({ dataset_id: id, as_of: before })).toEqual([1]);
    const { example } = await call('read_example', { example_id: first.id });
    expect(example).toMatchObject({ id: first.id, dataset_id: id, outputs: { n: 10 }, runs: [], source_run_id: null });
    expect((await call('read_example', { example_id: first.id, as_of: before })).example.outputs).toEqual({ n: 1 });
    const { examples, total_count: count } = await call('list_examples', {
      dataset_id: id,
      include_attachments: 'true',
    });
    expect([count, examples[0].attachments]).toEqual([2, {}]);
    expect((await call('read_example', { example_id: randomUUID() })).error).toMatch(/not found/);
  });
});

describe('prompts', () => {
  it('are listed by visibility, and read by name, tag and commit', async () => {
    await server.api.ask(server.owner.adminKey, 'POST', '/settings/handle', { tenant_handle: 'zoo' });
    await ask('POST', '/repos', { repo_handle: 'greeting', is_public: false, description: 'Greets', tags: ['a'] });
    await ask('POST', '/repos', { repo_handle: 'shared', is_public: true });
    const template = ChatPromptTemplate.fromMessages([
      ['system', 'Be {mood}.'],
      ['human', '{question}'],
    ]);
    const manifest = JSON.parse(JSON.stringify(template));
    const { commit } = await ask('POST', '/commits/-/greeting', { manifest });
    await ask('POST', '/commits/-/greeting', { manifest: { template: 'Hi {name}' } });
    await ask('POST', '/repos/-/greeting/tags', { tag_name: 'production', commit_id: commit.id });
    const handles = async (args: Record<string, unknown>) =>
      (await call('list_prompts', args)).prompts.map((each: { repo_handle: string }) => each.repo_handle);
    expect(await handles({})).toEqual(['greeting']);
    expect(await handles({ is_public: 'true' })).toEqual(['shared']);
    expect(await handles({ visibility: 'public' })).toEqual(['shared']);
    const { prompts, total_count: count } = await call('list_prompts', { limit: 1 });
    expect([prompts, count]).toMatchObject([
      [{ full_name: 'zoo/greeting', description: 'Greets', tags: ['a'], is_public: false, num_likes: 0 }],
      1,
    ]);
    expect(await call('get_prompt_by_name', { prompt_name: 'greeting' })).toMatchObject({
      template: 'Hi {name}',
      prompt: { repo_handle: 'greeting' },
    });
    for (const name of ['greeting:production', `zoo/greeting:${commit.commit_hash.slice(0, 8)}`]) {
      expect(await call('get_prompt_by_name', { prompt_name: name })).toMatchObject({
        ...manifest,
        commit_hash: commit.commit_hash,
        prompt: { full_name: 'zoo/greeting' },
      });
    }
    await ask('POST', '/repos', { repo_handle: 'unusual', is_public: false });
    for (const [members, nested] of [
      [{ prompt: 'Hi', error: 'x', note: 1, type: 2 }, true],
      [{ lc: 'one', type: 2, kwargs: [], messages: 'x' }, false],
    ] as const) {
      await ask('POST', '/commits/-/unusual', { manifest: members });
      expect(await call('get_prompt_by_name', { prompt_name: 'unusual' })).toMatchObject({
        ...(nested ? { manifest: members } : members),
        prompt: { repo_handle: 'unusual' },
      });
    }
    expect((await call('get_prompt_by_name', { prompt_name: 'none' })).error).toMatch(/not found/);
    expect((await call('get_prompt_by_name', { prompt_name: 'a/b/c' })).error).toMatch(/must be name/);
  });
});

describe('usage and exports', () => {
  it('are counted by workspace, and over time', async () => {
    await sendRuns(server, [rootRun('usage a'), rootRun('usage b'), rootRun('usage c')]);
    await server.api.settled();
    await runRollUp(server.api.services);
    const range = { starting_on: '2020-01-01', ending_before: '2100-01-01' };
    const admin = (name: string, args: object) => server.call(name, { ...args }, server.owner.adminKey);
    const { usage } = await admin('get_billing_usage', range);
    const direct = await server.api.ask(
      server.owner.adminKey,
      'GET',
      `/orgs/current/billing/usage?starting_on=2020-01-01&ending_before=2100-01-01`,
    );
    const [workspaceId] = server.owner.workspaceIds;
    expect(usage[0].value).toBe(direct.body[0].value);
    expect(usage[0].groups[workspaceId]).toEqual({
      workspace_name: 'owner 1',
      value: direct.body[0].groups[workspaceId],
    });
    const one = (await admin('get_billing_usage', { ...range, workspace: 'OWNER 1', on_current_plan: 'false' })).usage;
    expect(Object.keys(one[0].groups)).toEqual([workspaceId]);
    expect((await admin('get_billing_usage', { ...range, workspace: 'nobody' })).error).toContain(
      'Workspace nobody not found.',
    );
    expect((await admin('get_billing_usage', { ...range, starting_on: 'soon' })).error).toMatch(
      /^HTTP 422: .*starting_on/,
    );

    // The runs started an hour ago, which can be yesterday.
    const [start_time, end_time] = [-86_400_000, 3_600_000].map((ms) => new Date(Date.now() + ms).toISOString());
    const granular = { start_time, end_time };
    const byProject = await admin('query_usage', { ...granular, group_by: 'project', limit: 2 });
    expect(byProject.usage).toHaveLength(2);
    expect(byProject.total_rows).toBeGreaterThan(2);
    const whole = await admin('query_usage', { ...granular, workspaces: ['owner 1'] });
    expect(whole.total_traces).toBe(byProject.total_traces);
    expect(whole.usage[0].dimensions).toEqual({ workspace_id: workspaceId, workspace_name: 'owner 1' });

    // A deleted workspace had the name before; further ones exceed what one request for granular usage may name.
    const { database } = server.api;
    const organizationId = server.owner.id;
    await database.execute(
      `INSERT INTO workspaces (id, organization_id, display_name, created_at, deleted_at)
       SELECT gen_random_uuid(), $1, CASE n WHEN 1 THEN 'owner 1' ELSE 'old ' || n END, '2020-01-01', now()
       FROM generate_series(1, 250) n`,
      [organizationId],
    );
    const again = (await admin('get_billing_usage', { ...range, workspace: 'owner 1' })).usage;
    expect(Object.keys(again[0].groups)).toEqual([workspaceId]);
    expect((await admin('query_usage', { ...granular, workspaces: ['owner 1'] })).usage).toEqual(whole.usage);
    expect(await admin('query_usage', { ...granular, group_by: 'project', limit: 2 })).toEqual(byProject);

    const base = { database, organizationId, userId: server.owner.userId };
    const reader = await addKey({ ...base, permissions: ['organization:read'] });
    for (const more of [{}, { workspace: workspaceId }]) {
      const read = await server.call('get_billing_usage', { ...range, ...more }, reader);
      expect(read.usage[0].groups[workspaceId].workspace_name).toBe(workspaceId);
    }
    expect((await server.call('get_billing_usage', { ...range, workspace: 'owner 1' }, reader)).error).toMatch(
      /^HTTP 403: .*workspaces:read/,
    );
  });

  it('lists exports with their progress', async () => {
    await sendRuns(server, [rootRun('exported')]);
    const projectId = await findProject('exported');
    const { exportId } = await addExport(server.api.database, {
      workspaceId: server.owner.workspaceIds[0],
      projectId,
      word: 'lake',
    });
    const { exports } = await call('list_exports', { project_name: 'exported', status: 'RUNNING' });
    expect(exports).toMatchObject([
      { id: exportId, status: 'RUNNING', session_id: projectId, progress: { rows_written: 7, runs_total: 1 } },
    ]);
    expect((await call('list_exports', { status: 'failed' })).exports).toEqual([]);
  });
});
