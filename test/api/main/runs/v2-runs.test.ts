import { randomUUID } from 'node:crypto';
import type { Client } from 'langsmith';
import { Client as NewClient } from 'langsmith-0-12';
import type { RunSelectField } from 'langsmith-0-12/resources';
import { beforeAll, describe, expect, it } from 'vitest';
import { v2Fields } from '../../../../pipelines/runs/v2-fields.ts';
import { forSuite } from '../../../for-suite.ts';
import { insertEvents, json, noonMicros, runEvent } from '../../../pipelines/runs/run-events.ts';
import { openClient } from '../../open-client.ts';
import { startRunsApi } from './runs.fixture.ts';

const runs = forSuite(() => startRunsApi());
let client: Client;
let rootId: string;
/** The runs of the fixture are older than the default time range. */
const min_start_time = new Date(noonMicros / 1_000).toISOString();
const everything = Object.keys(v2Fields).map((name) => name.toUpperCase());
beforeAll(async () => {
  rootId = runs.trace[0].runId;
  client = await openClient(runs.api, runs.ours.workspaceKeys[0]);
});

const query = (body: object, more: object = {}) =>
  runs.ask({ url: '/v2/runs/query', body: { project_ids: [runs.projectId], min_start_time, ...body }, ...more });
const items = async (body: object) => (await query(body)).body.items as { id: string }[];
const ids = async (body: object) => (await items(body)).map(({ id }) => id);

describe('the stock SDK', () => {
  it('queries runs over all pages', async () => {
    const read: object[] = [];
    const parameters = { project_ids: [runs.projectId], min_start_time, page_size: 1 };
    for await (const run of client.runs.query({ ...parameters, selects: ['ID', 'NAME', 'STATUS'] })) read.push(run);
    expect(read).toEqual([
      { id: runs.trace[2].runId, name: 'grandchild', status: 'ERROR' },
      { id: runs.trace[1].runId, name: 'child', status: 'SUCCESS' },
      { id: rootId, name: 'root', status: 'SUCCESS' },
    ]);
  });

  it('retrieves a run', async () => {
    const run = await client.runs.retrieve(rootId, { project_id: runs.projectId, selects: ['ID', 'NAME', 'OUTPUTS'] });
    expect(run).toMatchObject({ id: rootId, name: 'root' });
    await expect(client.runs.retrieve(rootId, { project_id: randomUUID() })).rejects.toMatchObject({ status: 404 });
  });

  it('selects every field that its type lists', async () => {
    // The type checks that no name is missing.
    const fields: Record<RunSelectField, true> = {
      ID: true,
      NAME: true,
      RUN_TYPE: true,
      STATUS: true,
      START_TIME: true,
      END_TIME: true,
      LATENCY_SECONDS: true,
      FIRST_TOKEN_TIME: true,
      ERROR: true,
      ERROR_PREVIEW: true,
      EXTRA: true,
      METADATA: true,
      EVENTS: true,
      INPUTS: true,
      INPUTS_PREVIEW: true,
      OUTPUTS: true,
      OUTPUTS_PREVIEW: true,
      MANIFEST: true,
      PARENT_RUN_IDS: true,
      PROJECT_ID: true,
      TRACE_ID: true,
      THREAD_ID: true,
      DOTTED_ORDER: true,
      IS_ROOT: true,
      REFERENCE_EXAMPLE_ID: true,
      REFERENCE_DATASET_ID: true,
      TOTAL_TOKENS: true,
      PROMPT_TOKENS: true,
      COMPLETION_TOKENS: true,
      TOTAL_COST: true,
      PROMPT_COST: true,
      COMPLETION_COST: true,
      PROMPT_TOKEN_DETAILS: true,
      COMPLETION_TOKEN_DETAILS: true,
      PROMPT_COST_DETAILS: true,
      COMPLETION_COST_DETAILS: true,
      PRICE_MODEL_ID: true,
      TAGS: true,
      APP_PATH: true,
      ATTACHMENTS: true,
      THREAD_EVALUATION_TIME: true,
      IS_IN_DATASET: true,
      LAST_QUEUED_AT: true,
      SHARE_URL: true,
      FEEDBACK_STATS: true,
      LS_USER_ID: true,
    };
    const selects = Object.keys(fields) as RunSelectField[];
    const names = selects.map((name) => name.toLowerCase()).sort();
    const newClient = await openClient(runs.api, runs.ours.workspaceKeys[0], {}, NewClient);
    const page = await newClient.runs.query({ project_ids: [runs.projectId], min_start_time, selects });
    const run = await newClient.runs.retrieve(rootId, { project_id: runs.projectId, selects });
    const { items: ofTrace } = await newClient.traces.listRuns(rootId, { project_id: runs.projectId, selects });
    for (const each of [...page.items, run, ...(ofTrace ?? [])]) {
      expect(Object.keys(each).sort()).toEqual(names);
      expect(each.ls_user_id).toBeNull();
    }
    const query = { project_id: runs.projectId, min_start_time, selects };
    const traces = await newClient.traces.query(query);
    expect(traces.items[0]?.root_run).toMatchObject({ ls_user_id: null });
  });
});

it('runs have the tokens of the calls below them, whether or not the client asks for them', async () => {
  const [tenantId] = runs.ours.workspaceIds;
  const project = await client.createProject({ projectName: randomUUID() });
  const root = runEvent({ tenantId, projectId: project.id });
  const { traceId, runId: parentRunId } = root;
  const values = { runType: 'llm' as const, promptTokens: 3, totalTokens: 5, parentRunId };
  const call = runEvent({ tenantId, projectId: project.id, traceId, values });
  await insertEvents(runs.api.services.clickhouse, [root, call]);
  for (const include_subtree_usage of [true, false]) {
    const selects = ['PROMPT_TOKENS', 'TOTAL_TOKENS'];
    const body = { project_ids: [project.id], min_start_time, is_root: true, selects, include_subtree_usage };
    const response = await fetch(`${await runs.api.listen()}/v2/runs/query`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-api-key': runs.ours.workspaceKeys[0] },
      body: JSON.stringify(body),
    });
    expect(response.headers.get('x-ignored-fields')).toBeNull();
    expect(await response.json()).toMatchObject({ items: [{ prompt_tokens: 3, total_tokens: 5 }] });
  }
});

describe('the record', () => {
  it.each(['/v2', '/api/v2', '/api/v1/v2'])('of %s/runs/{id} has exactly the selected fields', async (prefix) => {
    const url = `${prefix}/runs/${runs.trace[2].runId}?project_id=${runs.projectId}`;
    expect((await runs.ask({ url })).body).toEqual({ id: runs.trace[2].runId });
    const selects = everything.map((name) => `&selects=${name}`).join('');
    const { body, text } = await runs.ask({ url: url + selects });
    expect(Object.keys(body)).toEqual(Object.keys(v2Fields));
    expect(text).toContain('"outputs":{"n":12345678901234567890}');
    expect(body).toMatchObject({
      run_type: 'CHAIN',
      status: 'ERROR',
      start_time: '2026-03-05T12:00:02.000000Z',
      end_time: '2026-03-05T12:00:09.000000Z',
      latency_seconds: 7,
      error: 'boom',
      error_preview: 'boom',
      manifest: { lc: 1 },
      parent_run_id: runs.trace[1].runId,
      parent_run_ids: [rootId, runs.trace[1].runId],
      project_id: runs.projectId,
      trace_id: rootId,
      is_root: false,
      share_url: null,
    });
  });

  it('has numbers for costs, and details in raw', async () => {
    const [tenantId] = runs.ours.workspaceIds;
    const usage = '{"prompt_token_details":{"cache_read":2},"prompt_cost_details":{"cache_read":"0.25"}}';
    const values = {
      runType: 'llm' as const,
      promptTokens: 3,
      promptCost: '0.5',
      usageDetails: Buffer.from(usage),
      extra: json({ metadata: { thread_id: 't', n: { deep: [1] } } }),
      error: Buffer.from(JSON.stringify('x'.repeat(300))),
    };
    const projectId = randomUUID();
    await runs.api.database.execute('INSERT INTO projects (id, workspace_id, name) VALUES ($1, $2, $3)', [
      projectId,
      tenantId,
      'costs',
    ]);
    const call = runEvent({ tenantId, projectId, values });
    await insertEvents(runs.api.services.clickhouse, [call]);
    const answer = await query({ project_ids: [projectId], ids: [call.runId], selects: everything });
    expect(answer.body).toMatchObject({
      items: [
        {
          prompt_tokens: 3,
          prompt_cost: 0.5,
          completion_cost: null,
          prompt_token_details: { raw: { cache_read: 2 } },
          prompt_cost_details: { raw: { cache_read: 0.25 } },
          completion_cost_details: null,
          thread_id: 't',
          metadata: { thread_id: 't', n: { deep: [1] } },
          error_preview: `${'x'.repeat(250)}…`,
          latency_seconds: null,
          is_root: true,
        },
      ],
    });
  });
});

describe('conditions', () => {
  const listReversedIds = () => [runs.trace[2].runId, runs.trace[1].runId, rootId];
  it.each<[string, () => object, () => string[]]>([
    ['of nothing', () => ({}), listReversedIds],
    ['ascending', () => ({ sort_order: 'ASC' }), () => listReversedIds().reverse()],
    ['root', () => ({ is_root: true }), () => [rootId]],
    ['not root', () => ({ is_root: false, has_error: false }), () => [runs.trace[1].runId]],
    ['error', () => ({ has_error: true }), () => [runs.trace[2].runId]],
    ['run type', () => ({ run_type: 'CHAIN' }), listReversedIds],
    ['other run type', () => ({ run_type: 'LLM' }), () => []],
    ['trace', () => ({ trace_id: rootId.toUpperCase() }), listReversedIds],
    ['filter', () => ({ filter: 'eq(name, "child")' }), () => [runs.trace[1].runId]],
    ['tree filter', () => ({ tree_filter: 'eq(name, "child")', is_root: true }), () => [rootId]],
    ['ids', () => ({ ids: [rootId.toUpperCase(), randomUUID()] }), () => [rootId]],
    ['ids and a filter', () => ({ ids: [rootId], filter: 'eq(name, "child")' }), () => []],
    ['ids and a trace filter', () => ({ ids: [rootId], trace_filter: 'eq(name, "root")' }), () => [rootId]],
    ['ids and a time', () => ({ ids: [rootId], min_start_time: '2026-03-05T12:00:01Z' }), () => []],
    ['first time', () => ({ min_start_time: '2026-03-05T12:00:02Z' }), () => [runs.trace[2].runId]],
    ['last time', () => ({ max_start_time: '2026-03-05T12:00:00Z' }), () => [rootId]],
    ['no time', () => ({ min_start_time: null }), () => []],
    ['examples', () => ({ reference_examples: [randomUUID()] }), () => []],
    ['a dataset', () => ({ project_ids: null, reference_dataset_id: randomUUID() }), () => []],
  ])('%s', async (_name, body, expected) => {
    expect(await ids(body())).toEqual(expected());
  });

  it('no error: runs that have ended without one, which a pending run has not', async () => {
    const send = async (url: string, body: object) => (await runs.ask({ url, body })).body.id as string;
    const project = await send('/sessions', { name: 'with a pending run' });
    const start_time = new Date().toISOString();
    const [done, failed, pending] = [randomUUID(), randomUUID(), randomUUID()];
    const base = { name: 'run', run_type: 'chain', session_id: project, start_time };
    await send('/runs', { ...base, id: done, end_time: start_time });
    await send('/runs', { ...base, id: failed, end_time: start_time, error: 'failed' });
    await send('/runs', { ...base, id: pending });
    await runs.api.settled();
    expect(await ids({ project_ids: [project], has_error: false })).toEqual([done]);
    expect(await ids({ project_ids: [project], has_error: true })).toEqual([failed]);
    expect(await ids({ project_ids: [project] })).toHaveLength(3);
    // Version 1 has other words for it: `error` is whether there is one now.
    const { body } = await runs.ask({ url: '/runs/query', body: { session: [project], error: false } });
    expect((body.runs as { id: string }[]).map(({ id }) => id).sort()).toEqual([done, pending].sort());
  });

  it('of a dataset: the runs of its experiments, at any time', async () => {
    const datasetId = randomUUID();
    const link = (id: string | null) =>
      runs.api.database.execute('UPDATE projects SET reference_dataset_id = $1 WHERE id = $2', [id, runs.projectId]);
    await link(datasetId);
    const { body } = await runs.ask({ url: '/v2/runs/query', body: { reference_dataset_id: datasetId } });
    expect(body.items).toHaveLength(3);
    await link(null);
  });
});

describe('errors are problems', () => {
  it.each<[string, () => object, number, string]>([
    ['no project', () => ({ project_ids: null }), 400, 'BAD_REQUEST'],
    ['projects and a dataset', () => ({ reference_dataset_id: randomUUID() }), 400, 'BAD_REQUEST'],
    ['an unknown project', () => ({ project_ids: [runs.projectId, randomUUID()] }), 404, 'NOT_FOUND'],
    ['an invalid filter', () => ({ filter: 'eq(' }), 400, 'INVALID_FILTER'],
    ['an invalid cursor', () => ({ cursor: 'x' }), 400, 'BAD_REQUEST'],
    ['an unknown field', () => ({ selects: ['id'] }), 422, 'INVALID_REQUEST'],
    ['a page that is too large', () => ({ page_size: 1_001 }), 422, 'INVALID_REQUEST'],
    ['an empty page', () => ({ page_size: 0 }), 422, 'INVALID_REQUEST'],
    ['an invalid time', () => ({ min_start_time: 'yesterday' }), 422, 'INVALID_REQUEST'],
    ['a lower-case run type', () => ({ run_type: 'llm' }), 422, 'INVALID_REQUEST'],
    ['too many ids', () => ({ ids: Array(1_001).fill(rootId) }), 422, 'INVALID_REQUEST'],
    ['an AI query', () => ({ ai_query: 'find errors' }), 400, 'PARAMETER_NOT_SUPPORTED'],
  ])('%s', async (_name, body, status, code) => {
    const answer = await query(body());
    expect(answer.type).toBe('application/problem+json; charset=utf-8');
    expect(answer.body).toMatchObject({
      type: 'about:blank',
      title: expect.any(String),
      status,
      detail: expect.any(String),
      instance: '/v2/runs/query',
      code,
    });
    expect(answer.status).toBe(status);
  });

  it('also for keys and other workspaces', async () => {
    expect((await query({}, { key: runs.keyWithoutRunsRead })).body).toMatchObject({
      status: 403,
      detail: 'Forbidden',
    });
    expect((await query({}, { key: 'none' })).body).toMatchObject({ status: 401 });
    for (const key of [runs.theirs.workspaceKeys[0], runs.ours.workspaceKeys[1]]) {
      expect((await query({}, { key })).body).toMatchObject({ status: 404 });
      const url = `/v2/runs/${rootId}?project_id=${runs.projectId}`;
      expect((await runs.ask({ url, key })).body).toMatchObject({ status: 404, instance: `/v2/runs/${rootId}` });
    }
    expect((await runs.ask({ url: `/v2/runs/${rootId}` })).body).toMatchObject({
      status: 422,
      errors: [{ loc: ['query', 'project_id'] }],
    });
  });
});
