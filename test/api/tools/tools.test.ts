import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { forSuite } from '../../for-suite.ts';
import { childRun, rootRun, sendRuns } from './send-runs.ts';
import { startToolServer, type ToolsUnderTest } from './start-tools.ts';

const server = forSuite(() => startToolServer());

const ask = (...request: Parameters<ToolsUnderTest['ask']>) => server.ask(...request);
const call = (name: string, args: Record<string, unknown> = {}) => server.call(name, args);
const findProject = async (name: string) => (await ask('GET', `/sessions?name=${name}`))[0].id as string;

const original = [
  'get_thread_history',
  'list_prompts',
  'get_prompt_by_name',
  'push_prompt',
  'fetch_runs',
  'list_projects',
  'list_datasets',
  'list_examples',
  'read_dataset',
  'read_example',
  'create_dataset',
  'update_examples',
  'list_experiments',
  'run_experiment',
  'get_billing_usage',
];

describe('the tools', () => {
  it('are those of the original, and four more', async () => {
    const { tools } = await (await server.connect()).listTools();
    const names = tools.map(({ name }) => name);
    expect(names.slice(0, 15)).toEqual(original);
    expect(names.slice(15)).toEqual(['get_run', 'get_project_stats', 'list_exports', 'query_usage']);
    for (const tool of tools) {
      expect(tool.annotations).toMatchObject({ readOnlyHint: true, destructiveHint: false });
      expect(tool.description?.length).toBeGreaterThan(60);
      expect(tool.outputSchema).toMatchObject({ type: 'object' });
      for (const property of Object.values(tool.inputSchema.properties ?? {}))
        expect(property).toMatchObject({ description: expect.any(String) });
    }
  });

  it('have the parameters and the defaults of the original', async () => {
    const { tools } = await (await server.connect()).listTools();
    const shapes = Object.fromEntries(
      tools.map(({ name, inputSchema: { properties = {}, required = [] } }) => [
        name,
        Object.entries(properties).map(([each, schema]) => {
          const { default: value } = schema as { default?: unknown };
          return `${each}${required.includes(each) ? '*' : ''}${value === undefined ? '' : `=${value}`}`;
        }),
      ]),
    );
    expect(shapes).toMatchObject({
      list_prompts: ['is_public=false', 'visibility', 'limit=20'],
      get_prompt_by_name: ['prompt_name*'],
      push_prompt: [],
      create_dataset: [],
      update_examples: [],
      run_experiment: [],
      get_thread_history: [
        'thread_id*',
        'project_name*',
        'page_number*',
        'max_chars_per_page=25000',
        'preview_chars=150',
      ],
      fetch_runs: [
        ...[
          'project_name*',
          'limit*',
          'page_number=1',
          'trace_id',
          'run_type',
          'error',
          'is_root',
          'filter',
          'trace_filter',
        ],
        ...['tree_filter', 'order_by=-start_time', 'ordering', 'reference_example_id', 'max_chars_per_page=25000'],
        'preview_chars=150',
      ],
      list_projects: ['limit=5', 'project_name', 'more_info=false', 'reference_dataset_id', 'reference_dataset_name'],
      list_experiments: ['reference_dataset_id', 'reference_dataset_name', 'limit=5', 'project_name'],
      list_datasets: ['dataset_ids', 'data_type', 'dataset_name', 'dataset_name_contains', 'metadata', 'limit=20'],
      list_examples: [
        ...['dataset_id', 'dataset_name', 'example_ids', 'filter', 'metadata', 'splits', 'inline_s3_urls=true'],
        ...['include_attachments=false', 'as_of', 'limit=10', 'offset=0'],
      ],
      read_dataset: ['dataset_id', 'dataset_name'],
      read_example: ['example_id*', 'as_of'],
      get_billing_usage: ['starting_on*', 'ending_before*', 'workspace', 'on_current_plan=true'],
    });
  });

  it('report invalid arguments as errors that say what is wrong', async () => {
    const page = { project_name: 'p', limit: 10 };
    const failures = [
      ['fetch_runs', { limit: 10 }, 'project_name is required'],
      ['fetch_runs', { ...page, project_name: [] }, 'project_name is required'],
      ['fetch_runs', { ...page, project_name: ' [ ]' }, 'project_name is required'],
      ['fetch_runs', { ...page, limit: 'many' }, 'limit must be an integer from 1 on'],
      ['fetch_runs', { ...page, error: 'maybe' }, 'error must be true or false'],
      ['fetch_runs', { ...page, trace_id: 'x' }, 'trace_id must be a UUID'],
      ['fetch_runs', { ...page, order_by: 'name' }, 'order_by must be one of -start_time, start_time'],
      ['fetch_runs', { ...page, project_name: ['a', 1] }, 'project_name must be a list of texts'],
      ['list_datasets', { metadata: '{' }, 'metadata is not valid JSON'],
      ['list_datasets', { metadata: '[1]' }, 'metadata must be a JSON object'],
      ['list_examples', { example_ids: [] }, 'dataset_id, dataset_name or example_ids must be provided.'],
      ['list_examples', {}, 'dataset_id, dataset_name or example_ids must be provided.'],
      ['list_experiments', {}, 'Exactly one of reference_dataset_id and reference_dataset_name must be provided.'],
      ['read_dataset', {}, 'Either dataset_id or dataset_name must be provided.'],
    ] as const;
    const { error: refused } = await call('get_project_stats', { project_name: 'p', start_time: 'yesterday' });
    expect(refused).toMatch(/Project p not found/);
    for (const [name, args, error] of failures) expect(await call(name, args)).toEqual({ error });
  });

  it('are listed without limits that any number is within', async () => {
    const client = await server.connect();
    const { tools } = await client.listTools();
    expect(JSON.stringify(tools)).not.toContain(String(Number.MIN_SAFE_INTEGER));
    for (const name of ['list_datasets', 'list_examples'])
      expect(tools.find((tool) => tool.name === name)?.outputSchema?.properties?.total_count).toMatchObject({
        description: expect.stringContaining('in this answer'),
      });
  });

  it('ignore unknown parameters, and say so', async () => {
    const { note } = await call('list_projects', { verbose: 'yes' });
    expect(note).toBe('Unknown parameters were ignored: verbose.');
  });

  it.each(['push_prompt', 'create_dataset', 'update_examples', 'run_experiment'])(
    '%s explains itself',
    async (name) => {
      const { result } = await call(name);
      expect(result).toContain('LANGSMITH_ENDPOINT=http://main.example:1984');
      expect(result).toMatch(/```python[\s\S]*```ts/);
      expect(result).not.toMatch(/langchain\.com/);
      for (const [, code] of result.matchAll(/```ts\n([\s\S]*?)```/g))
        expect(code.match(/^import \{ (?:Client|evaluate) \} from 'langsmith(?:\/evaluation)?';$/gm)).toHaveLength(1);
    },
  );
});

describe('fetch_runs', () => {
  it('returns all fields of runs, also those without a value', async () => {
    const run = rootRun('first', { inputs: { question: 'why', id: 1 } });
    await sendRuns(server, [run]);
    const result = await call('fetch_runs', { project_name: 'first', limit: 10, page_number: 1, preview_chars: 0 });
    expect(result).toMatchObject({ page_number: 1, total_pages: 1, max_chars_per_page: 25_000, preview_chars: 0 });
    expect(result.runs).toMatchObject([
      { id: run.id, outputs: { answer: 'because' }, error: null, parent_run_id: null },
    ]);
    const [stored] = (await ask('POST', '/runs/query', { id: [run.id] })).runs;
    for (const [name, value] of Object.entries(result.runs[0])) expect([name, value]).toEqual([name, stored[name]]);
  });

  it('pages through a trace of 120 runs by characters', async () => {
    const root = rootRun('pages');
    const runs = [
      root,
      ...Array.from({ length: 119 }, (_, n) => childRun(root, 'pages', { inputs: { n, text: 'x'.repeat(400) } })),
    ];
    await sendRuns(server, runs);
    const args = {
      project_name: ['pages'],
      trace_id: root.id,
      limit: 500,
      max_chars_per_page: '20000',
      order_by: 'start_time',
    };
    const first = await call('fetch_runs', args);
    const note = expect.stringMatching(/^limit 500 was reduced to 100, the maximum\. More runs match: /);
    expect(first).toMatchObject({ page_number: 1, note });
    const found = [...first.runs];
    for (let page = 2; page <= first.total_pages; page += 1) {
      const { runs: more, ...rest } = await call('fetch_runs', { ...args, page_number: page });
      expect(rest).toMatchObject({ page_number: page, total_pages: first.total_pages, max_chars_per_page: 20_000 });
      expect(JSON.stringify({ runs: more, ...rest }).length).toBeLessThanOrEqual(20_000);
      found.push(...more);
    }
    expect(found.map(({ id }) => id)).toEqual(runs.slice(0, 100).map(({ id }) => id));
    expect(found[1].inputs.text).toBe(`${'x'.repeat(150)}… (+250 chars)`);
    expect((await call('fetch_runs', { ...args, page_number: 99 })).runs).toEqual([]);
    expect((await call('fetch_runs', { ...args, page_number: '0' })).runs).toEqual([]);
  });

  it('filters as the main API does', async () => {
    const failed = rootRun('filters', { name: 'failed', error: 'no', tags: ['beta'] });
    const fine = rootRun('filters', { name: 'fine' });
    const model = childRun(fine, 'filters', { name: 'model', run_type: 'llm' });
    const other = rootRun('other-filters', { name: 'elsewhere' });
    await sendRuns(server, [failed, fine, model, other]);
    const names = async (args: Record<string, unknown>) => {
      const { runs, error } = await call('fetch_runs', { project_name: 'filters', limit: '10', ...args });
      expect(error).toBeUndefined();
      return runs.map(({ name }: { name: string }) => name);
    };
    expect(await names({})).toEqual(['model', 'fine', 'failed']);
    expect(await names({ ordering: 'start_time' })).toEqual(['failed', 'fine', 'model']);
    expect(await names({ error: 'true' })).toEqual(['failed']);
    expect(await names({ error: false, is_root: true })).toEqual(['fine']);
    expect(await names({ is_root: 'false' })).toEqual(['model']);
    expect(await names({ run_type: 'llm' })).toEqual(['model']);
    expect(await names({ filter: 'has(tags, "beta")' })).toEqual(['failed']);
    expect(await names({ trace_filter: 'eq(name, "fine")' })).toEqual(['model', 'fine']);
    expect(await names({ tree_filter: 'eq(name, "model")', is_root: true })).toEqual(['fine']);
    expect(await names({ project_name: '["filters", "other-filters"]', is_root: 'true' })).toEqual([
      'elsewhere',
      'fine',
      'failed',
    ]);
    expect(await names({ project_name: await findProject('filters'), limit: 1 })).toEqual(['model']);
    const { error } = await call('fetch_runs', { project_name: 'filters', limit: 1, filter: 'eq(name' });
    expect(error).toMatch(/^Invalid filter at character \d+: .* Correct the expression/);
    expect(await call('fetch_runs', { project_name: 'nowhere', limit: 1 })).toMatchObject({
      error: expect.stringContaining('Project nowhere not found.'),
    });
  });

  it('says that more runs match than it has read', async () => {
    const root = rootRun('beyond');
    const children = Array.from({ length: 101 }, (_, index) => childRun(root, 'beyond', { name: `step ${index}` }));
    await sendRuns(server, [root, ...children]);
    const read = async (args: object) =>
      (await call('fetch_runs', { project_name: 'beyond', trace_id: root.id, ...args })).note;
    expect(await read({ limit: 100 })).toBe(
      'More runs match: the pages have only the first 100. For the others, add a condition on start_time to filter.',
    );
    expect(await read({ limit: 1 })).toMatch(
      /^More runs match: the pages have only the first 1\. For the others, raise limit/,
    );
    expect(await read({ limit: 100, is_root: true })).toBeUndefined();
  });

  it('says that no project has an id', async () => {
    const missing = randomUUID();
    const error = expect.stringContaining(`Project ${missing} not found.`);
    for (const tool of ['fetch_runs', 'get_project_stats'])
      expect(await call(tool, { project_name: missing, limit: 1 })).toMatchObject({ error });
    const both = [await findProject('filters'), missing];
    expect(await call('fetch_runs', { project_name: both, limit: 1 })).toMatchObject({ error });
  });

  it('finds projects whose names look like lists', async () => {
    for (const project of ['[prod] agent', '[1]']) {
      await sendRuns(server, [rootRun(project, { name: project })]);
      expect((await call('fetch_runs', { project_name: project, limit: 1 })).runs).toMatchObject([{ name: project }]);
    }
    const { error } = await call('fetch_runs', { project_name: ['[1]', ''], limit: 1 });
    expect(error).toMatch(/^Project {2}not found/);
  });

  it('loses no digit of large integers', async () => {
    await sendRuns(server, [rootRun('digits', { inputs: {} })]);
    const run = rootRun('digits');
    const text = JSON.stringify({ post: [{ ...run, inputs: 'here' }] }).replace(
      '"here"',
      '{"id":12345678901234567890,"text":"12345678901234567890, ok","small":7}',
    );
    const sent = await server.api.server.inject({
      method: 'POST',
      url: '/runs/batch',
      headers: { 'x-api-key': server.owner.workspaceKeys[0], 'content-type': 'application/json' },
      payload: text,
    });
    expect(sent.statusCode).toBe(202);
    const { runs } = await call('fetch_runs', { project_name: 'digits', limit: 1 });
    expect(runs[0].inputs).toEqual({ id: '12345678901234567890', text: '12345678901234567890, ok', small: 7 });
  });
});

describe('get_run', () => {
  it('returns a run with an outline of those below', async () => {
    const root = rootRun('tree');
    const step = childRun(root, 'tree', { name: 'step', run_type: 'tool' });
    const model = childRun(step, 'tree', { name: 'model', run_type: 'llm', error: 'too long' });
    const last = childRun(root, 'tree', { name: 'last', end_time: undefined, outputs: undefined });
    await sendRuns(server, [root, step, model, last]);
    const { run, outline } = await call('get_run', { run_id: root.id });
    expect(run).toMatchObject({ id: root.id, inputs: { question: 'why' } });
    expect(outline).toEqual([
      `agent (chain), success, 0.5 s, ${root.id}`,
      `  step (tool), success, 0.5 s, ${step.id}`,
      `    model (llm), error, 0.5 s, ${model.id}`,
      `  last (chain), pending, ${last.id}`,
    ]);
    const inner = await call('get_run', { run_id: step.id.toUpperCase() });
    expect(inner.outline).toEqual([
      `step (tool), success, 0.5 s, ${step.id}`,
      `  model (llm), error, 0.5 s, ${model.id}`,
    ]);
    expect(await call('get_run', { run_id: step.id, outline: 'false' })).not.toHaveProperty('outline');
    const missing = randomUUID();
    expect((await call('get_run', { run_id: missing })).error).toContain(`Run ${missing} not found.`);
  });

  it('finds the root run of an OpenTelemetry trace by the id of the trace', async () => {
    const startMs = Date.now();
    const span = (spanId: string, name: string, more: object) => ({
      ...{ traceId: '5b8efff798038103d269b633813fc60c', spanId, name, ...more },
      ...{ startTimeUnixNano: `${startMs}000000`, endTimeUnixNano: `${startMs + 500}000000` },
    });
    const spans = [
      span('eee19b7ec3c1b174', 'agent', {}),
      span('eee19b7ec3c1b175', 'step', { parentSpanId: 'eee19b7ec3c1b174' }),
    ];
    await ask('POST', '/otel/v1/traces', { resourceSpans: [{ scopeSpans: [{ spans }] }] });
    const { run, outline } = await call('get_run', { run_id: '5b8efff7-9803-8103-d269-b633813fc60c' });
    expect(run).toMatchObject({ id: '00000000-0000-0000-eee1-9b7ec3c1b174', name: 'agent' });
    expect(outline).toEqual([
      'agent (chain), success, 0.5 s, 00000000-0000-0000-eee1-9b7ec3c1b174',
      '  step (chain), success, 0.5 s, 00000000-0000-0000-eee1-9b7ec3c1b175',
    ]);
  });

  it('finds the runs below a run late in a large trace', async () => {
    const root = rootRun('large');
    const early = Array.from({ length: 1_010 }, (_, index) => childRun(root, 'large', { name: `early ${index}` }));
    const step = childRun(root, 'large', { name: 'step', start_time: Date.now() + 60_000, end_time: undefined });
    const model = childRun(step, 'large', { name: 'model', start_time: Date.now() + 61_000, end_time: undefined });
    await sendRuns(server, [root, ...early, step, model]);
    const inner = await call('get_run', { run_id: step.id });
    expect(inner.outline).toEqual([`step (chain), pending, ${step.id}`, `  model (chain), pending, ${model.id}`]);
    const whole = await call('get_run', { run_id: root.id });
    expect(whole.outline.length).toBeGreaterThan(300);
    expect(whole.outline.join('').length).toBeLessThanOrEqual(25_000);
    expect(whole.note).toBe(`The outline has the first ${whole.outline.length} runs of the tree; the trace has more.`);
  });

  it('shows a run with very many short texts as far as a model can read it', async () => {
    const texts = Array.from({ length: 3_000 }, (_, index) => `text ${index}`);
    const [cut, numbers] = [
      rootRun('cut', { inputs: { texts: texts.slice(0, 300).map((text) => text.repeat(20)) } }),
      rootRun('numbers', { inputs: { texts, numbers: texts.map((_, index) => index) } }),
    ];
    await sendRuns(server, [cut, numbers]);
    const shown = await call('get_run', { run_id: cut.id });
    expect(shown.run).toMatchObject({ id: cut.id, status: 'success' });
    expect(shown.run.inputs.texts).toHaveLength(300);
    const preview = await call('get_run', { run_id: numbers.id });
    expect(preview).toMatchObject({ run: { id: numbers.id, name: 'agent' }, _truncated: true });
    for (const each of [shown, preview]) expect(JSON.stringify(each).length).toBeLessThan(30_000);
    expect((await call('get_run', { run_id: numbers.id, preview_chars: 0 })).run.inputs.texts).toEqual(texts);
  });
});
