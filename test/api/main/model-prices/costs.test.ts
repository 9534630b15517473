import { randomUUID } from 'node:crypto';
import { RunTree } from 'langsmith';
import { beforeAll, describe, expect, it } from 'vitest';
import { formatDottedOrderSegment } from '../../../../pipelines/ingest/run-event/dotted-order.ts';
import { forSuite } from '../../../for-suite.ts';
import { openClient } from '../../open-client.ts';
import { addOrganization, askAs, startApi } from '../../start-api.ts';

const api = forSuite(() => startApi({ config: { patchWaitMs: 0, maxRunAgeDays: 3_650 } }));
const acme = forSuite(() => addOrganization(api.database, 'acme'));
const other = forSuite(() => addOrganization(api.database, 'other'));
/** Ids of prices by name. The first price is 1 dollar per token, the second 2 dollars, and so on. */
const prices = new Map<string, string>();
const patterns: readonly (readonly [name: string, fields: object])[] = [
  ['metadata', { match_pattern: '^meta$' }],
  ['inputs.model', { match_pattern: '^in-model$' }],
  ['inputs.model_name', { match_pattern: '^in-name$' }],
  ['parameters', { match_pattern: '^param' }],
  ['provider', { match_pattern: '^shared$', provider: 'acme' }],
  ['any provider', { match_pattern: '^shared$' }],
  ['since 2026-03', { match_pattern: '^dated$', start_time: '2026-03-01T00:00:00Z' }],
  ['before 2026-03', { match_pattern: '^dated$' }],
  ['one member', { match_pattern: '^only$', match_path: ['model_id'] }],
];

const client = forSuite(() => openClient(api, acme.adminKey));
beforeAll(async () => {
  for (const [index, [name, fields]] of patterns.entries()) {
    const body = { name, prompt_cost: index + 1, completion_cost: 100, ...fields };
    const made = await ask('POST', '/model-price-map', body);
    expect(made.status).toBe(200);
    prices.set(name, made.body.id);
  }
});

const ask = askAs(api, acme);

const usage = (tokens = 1) => ({ usage_metadata: { input_tokens: tokens, output_tokens: 0 } });

interface SentEvent {
  readonly kind: 'post' | 'patch';
  readonly fields: object;
}

/** Sends events of one run, each in its own batch, and returns the run. */
async function sendEvents(
  events: readonly SentEvent[],
  { key = acme.adminKey, startMicros = Date.now() * 1_000 } = {},
) {
  const id = randomUUID();
  const keys = { id, trace_id: id, dotted_order: formatDottedOrderSegment(startMicros, id) };
  const start_time = new Date(startMicros / 1_000).toISOString();
  for (const { kind, fields } of events) {
    const answer = await api.ask(key, 'POST', '/runs/batch', { [kind]: [{ ...keys, start_time, ...fields }] });
    expect(answer.status).toBe(202);
  }
  return (await api.ask(key, 'GET', `/runs/${id}`)).body;
}

const post = (fields: object): SentEvent => ({
  kind: 'post',
  fields: { run_type: 'llm', name: 'call', inputs: {}, ...fields },
});
const patch = (fields: object): SentEvent => ({ kind: 'patch', fields });

describe('the price of a run', () => {
  const meta = { ls_model_name: 'meta' };
  it.each<[string, object, string | undefined]>([
    ['metadata', { extra: { metadata: meta }, inputs: { model: 'in-model' } }, 'metadata'],
    ['inputs.model', { inputs: { model: 'in-model', model_name: 'in-name' } }, 'inputs.model'],
    ['inputs.model_name', { inputs: { model_name: 'in-name' } }, 'inputs.model_name'],
    [
      'inputs before parameters',
      { inputs: { model_name: 'in-name' }, extra: { invocation_params: { model: 'param' } } },
      'inputs.model_name',
    ],
    ...['model', 'model_name', 'model_id', 'model_path', 'endpoint_name'].map((name): [string, object, string] => [
      `invocation_params.${name}`,
      { extra: { invocation_params: { [name]: 'params' } } },
      'parameters',
    ]),
    [
      'a name without a price, before one with a price',
      { extra: { metadata: { ls_model_name: 'none' } }, inputs: { model: 'in-model' } },
      undefined,
    ],
    [
      'a name that is no text',
      { extra: { metadata: { ls_model_name: 7 } }, inputs: { model: 'in-model' } },
      'inputs.model',
    ],
    ['a name that is too long', { inputs: { model: 'param'.repeat(100) } }, undefined],
    ['a name in another object', { inputs: { messages: [{ model: 'in-model' }] } }, undefined],
    ['the provider', { extra: { metadata: { ls_model_name: 'shared', ls_provider: 'acme' } } }, 'provider'],
    ['another provider', { extra: { metadata: { ls_model_name: 'shared', ls_provider: 'acme2' } } }, 'any provider'],
    ['no provider', { extra: { metadata: { ls_model_name: 'shared' } } }, 'any provider'],
    ['a member in match_path', { extra: { invocation_params: { model_id: 'only' } } }, 'one member'],
    ['a member that is not in match_path', { extra: { invocation_params: { model: 'only' } } }, undefined],
    ['the metadata, whatever match_path is', { extra: { metadata: { ls_model_name: 'only' } } }, 'one member'],
  ])('%s', async (_name, fields, name) => {
    const run = await sendEvents([post({ ...fields, outputs: usage() })]);
    expect(run.price_model_id).toBe(name === undefined ? null : prices.get(name));
    const index = patterns.findIndex(([each]) => each === name);
    expect(run.prompt_cost).toBe(name === undefined ? null : String(index + 1));
  });

  it('applies from its start time on', async () => {
    const events = [post({ extra: { metadata: { ls_model_name: 'dated' } }, outputs: usage() })];
    const march = Date.UTC(2026, 2, 1) * 1_000;
    expect((await sendEvents(events, { startMicros: march })).prompt_cost).toBe('7');
    expect((await sendEvents(events, { startMicros: march - 1 })).prompt_cost).toBe('8');
  });

  it('is one of the release if the workspace has none, in every workspace', async () => {
    const events = [
      post({
        extra: { metadata: { ls_model_name: 'gpt-4o-2024-08-06' } },
        outputs: {
          usage_metadata: { input_tokens: 1_000, output_tokens: 10, input_token_details: { cache_read: 600 } },
        },
      }),
    ];
    const costs = { prompt_cost: '0.00175', completion_cost: '0.0001', total_cost: '0.00185' };
    for (const key of [acme.adminKey, other.adminKey]) {
      const run = await sendEvents(events, { key });
      expect(run).toMatchObject({ ...costs, prompt_cost_details: { cache_read: '0.00075' } });
    }
    const ours = [post({ extra: { metadata: { ls_model_name: 'meta' } }, outputs: usage() })];
    expect((await sendEvents(ours, { key: other.adminKey })).prompt_cost).toBeNull();
  });

  it('never changes costs of runs that were accepted before', async () => {
    const body = { name: 'changing', match_pattern: '^changing$', prompt_cost: 1, completion_cost: 1 };
    const events = [post({ extra: { metadata: { ls_model_name: 'changing' } }, outputs: usage() })];
    const before = await sendEvents(events);
    const { id } = (await ask('POST', '/model-price-map', body)).body;
    const during = await sendEvents(events);
    await ask('PUT', `/model-price-map/${id}`, { ...body, prompt_cost: 5 });
    const after = await sendEvents(events);
    const now = await Promise.all(
      [before, during, after].map(async (run) => (await ask('GET', `/runs/${run.id}`)).body),
    );
    expect(now.map((run) => run.prompt_cost)).toEqual([null, '1', '5']);
  });
});

/** Returns all permutations of a list. */
function permute<Item>(items: readonly Item[]): Item[][] {
  if (items.length === 0) return [[]];
  return items.flatMap((item, at) => permute(items.filter((_, index) => index !== at)).map((rest) => [item, ...rest]));
}

describe('events of a run that arrive in any order, in different batches', () => {
  const named = post({ extra: { metadata: { ls_model_name: 'meta' } } });
  const patchWithWeakerName = patch({ inputs: { model: 'in-model' } });
  const tokens = patch({ outputs: { usage_metadata: { input_tokens: 20, output_tokens: 1 } } });
  const stated = patch({ outputs: { usage_metadata: { input_tokens: 20, total_cost: 0.5 } } });
  const noCosts = patch({
    outputs: {
      usage_metadata: { input_tokens: 20, output_tokens: 1, input_cost_details: {}, output_cost_details: { a: -1 } },
    },
  });

  it.each([
    ['name and tokens', [named, tokens], { prompt_cost: '20', completion_cost: '100', total_cost: '120' }],
    ['two names', [named, patchWithWeakerName, tokens], { prompt_cost: '20', total_cost: '120' }],
    ['explicit costs', [named, stated], { prompt_cost: null, completion_cost: null, total_cost: '0.5' }],
    ['explicit costs and tokens', [named, tokens, stated], { prompt_cost: null, total_cost: '0.5' }],
    ['details of costs without one', [named, tokens, noCosts], { prompt_cost: '20', total_cost: '120' }],
  ])('%s', async (_name, events, costs) => {
    for (const order of permute(events)) expect(await sendEvents(order), JSON.stringify(order)).toMatchObject(costs);
    expect(await sendEvents([...events, ...events])).toMatchObject(costs);
  });
});

it('the stock SDK sends a trace, whose costs are in its run, its parent, statistics, projects and version 2', async () => {
  const root = new RunTree({ name: 'agent', run_type: 'chain', project_name: 'costs', client, inputs: { q: 1 } });
  await root.postRun();
  const call = root.createChild({
    name: 'call',
    run_type: 'llm',
    inputs: { messages: [] },
    metadata: { ls_model_name: 'claude-sonnet-4-5-20250929', ls_provider: 'anthropic' },
  });
  await call.postRun();
  await client.awaitPendingTraceBatches();
  await call.end({
    usage_metadata: {
      input_tokens: 2_000,
      output_tokens: 100,
      total_tokens: 2_100,
      input_token_details: { cache_read: 1_000, ephemeral_5m_input_tokens: 400, ephemeral_1h_input_tokens: 100 },
    },
  });
  await call.patchRun();
  await root.end({ a: 1 });
  await root.patchRun();
  await client.awaitPendingTraceBatches();
  await api.settled();

  // Dollars per million tokens: 1,000 at 0.30, 400 at 3.75, 100 at 6 and 500 at 3; and 100 at 15.
  const costs = { prompt_cost: '0.0039', completion_cost: '0.0015', total_cost: '0.0054' };
  const details = { cache_read: '0.0003', ephemeral_5m_input_tokens: '0.0015', ephemeral_1h_input_tokens: '0.0006' };
  for (const id of [root.id, call.id]) {
    expect(await client.readRun(id)).toMatchObject({ ...costs, prompt_cost_details: details, total_tokens: 2_100 });
  }
  const project = await client.readProject({ projectName: 'costs', includeStats: true });
  expect(project).toMatchObject(costs);
  const stats = (await ask('POST', '/runs/stats', { session: [project.id] })).body;
  expect(stats).toMatchObject({ total_cost: 0.0054, prompt_cost: 0.0039, completion_cost: 0.0015 });
  expect(stats.prompt_cost_details).toEqual({
    cache_read: 0.0003,
    ephemeral_5m_input_tokens: 0.0015,
    ephemeral_1h_input_tokens: 0.0006,
  });
  const dear = (await ask('POST', '/runs/query', { session: [project.id], filter: 'gt(total_cost, 0.005)' })).body;
  expect(dear.runs.map(({ id }: { id: string }) => id).sort()).toEqual([root.id, call.id].sort());
  const now = Date.now();
  const v2 = await ask('POST', '/api/v2/runs/query', {
    project_ids: [project.id],
    min_start_time: new Date(now - 3_600_000).toISOString(),
    max_start_time: new Date(now + 3_600_000).toISOString(),
    selects: ['ID', 'TOTAL_COST', 'PRICE_MODEL_ID'],
  });
  expect(v2.body.items.map((run: { total_cost: number }) => run.total_cost)).toEqual([0.0054, 0.0054]);
});
