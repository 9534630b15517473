import { randomUUID } from 'node:crypto';
import type { Client } from 'langsmith';
import { beforeAll, describe, expect, it } from 'vitest';
import { openClickHouse } from '../../../../infra/clickhouse/client.ts';
import { forSuite } from '../../../for-suite.ts';
import { logger } from '../../../silent-logger.ts';
import { openClient } from '../../open-client.ts';
import { startRunsApi } from './runs.fixture.ts';

const runs = forSuite(() => startRunsApi());
let ids: string[];
beforeAll(async () => {
  ids = runs.trace.map((run) => run.runId);
});

const url = '/api/v1/runs/query';
const query = (body: unknown, key?: string) => runs.ask({ url, body, ...(key && { key }) });
const namesOf = (answer: { body: { runs: readonly Record<string, unknown>[] } }) =>
  answer.body.runs.map((run) => run.name);

it('returns a page in the public schema', async () => {
  const { status, type, text, body } = await query({ session: [runs.projectId] });
  expect([status, type]).toEqual([200, 'application/json; charset=utf-8']);
  expect(body).toMatchObject({ cursors: { next: null }, search_cursors: null, parsed_query: null });
  expect(body.runs.map((run) => run.id)).toEqual([...ids].reverse());
  expect(text).toContain('"outputs":{"n":12345678901234567890}');
});

describe('parameters of clients', () => {
  const nothing = {
    id: null,
    trace: null,
    parent_run: null,
    run_type: null,
    session: null,
    reference_example: null,
    execution_order: null,
    start_time: null,
    end_time: null,
    error: null,
    query: null,
    filter: null,
    trace_filter: '',
    tree_filter: null,
    search_filter: null,
    is_root: null,
    data_source_type: null,
    skip_pagination: null,
    use_experimental_search: false,
    cursor: null,
    limit: null,
    select: null,
    order: null,
    skip_prev_cursor: false,
  };
  it.each<[string, () => object, string[]]>([
    ['nothing', () => ({}), ['grandchild', 'child', 'root']],
    ['nulls', () => nothing, ['grandchild', 'child', 'root']],
    [
      'unknown keys',
      () => ({ order_by: '-start_time', child_run_ids: [], run_ids: ['x'] }),
      ['grandchild', 'child', 'root'],
    ],
    ['an empty selection and cursor', () => ({ select: [], cursor: '' }), ['grandchild', 'child', 'root']],
    ['no ids', () => ({ id: [] }), []],
    ['no projects', () => ({ session: [] }), []],
    ['no examples', () => ({ reference_example: [] }), []],
    ['a limit above 100', () => ({ limit: 5_000 }), ['grandchild', 'child', 'root']],
    ['ascending', () => ({ order: 'asc', limit: 2 }), ['root', 'child']],
    ['roots', () => ({ is_root: true }), ['root']],
    ['execution order', () => ({ execution_order: 1 }), ['root']],
    ['execution order and roots', () => ({ execution_order: 1, is_root: true }), ['root']],
    ['not roots of a trace', () => ({ trace: ids[0], is_root: false }), ['grandchild', 'child']],
    ['children', () => ({ parent_run: ids[1]?.toUpperCase() }), ['grandchild']],
    ['errors', () => ({ error: true }), ['grandchild']],
    ['no errors', () => ({ error: false }), ['child', 'root']],
    ['a run type', () => ({ run_type: 'llm' }), []],
    ['from a time', () => ({ start_time: '2026-03-05T13:00:01+01:00' }), ['grandchild', 'child']],
    ['from a time in lower case', () => ({ start_time: '2026-03-05t12:00:01z' }), ['grandchild', 'child']],
    ['a filter', () => ({ filter: 'eq(name, "child")' }), ['child']],
    ['a trace filter', () => ({ trace_filter: 'eq(name, "child")' }), []],
    ['a tree filter', () => ({ tree_filter: 'eq(name, "child")' }), ['grandchild', 'child', 'root']],
    ['a search filter', () => ({ search_filter: 'search("BOOM")' }), ['grandchild']],
    [
      'a hundred searches',
      () => ({ filter: `and(${Array.from({ length: 100 }, () => 'search("boom")').join(', ')})` }),
      ['grandchild'],
    ],
    [
      'a hundred searches for letters outside ASCII',
      () => ({ filter: `or(search("BOOM"), ${Array.from({ length: 98 }, () => 'search("é")').join(', ')})` }),
      ['grandchild'],
    ],
    ['a text', () => ({ query: 'boom' }), ['grandchild']],
    [
      'a kind of store',
      () => ({ data_source_type: 'current', use_experimental_search: true }),
      ['grandchild', 'child', 'root'],
    ],
    ['ids with a filter, which is ignored', () => ({ id: [ids[0]], filter: 'eq(name, "child")' }), ['root']],
    ['until an end', () => ({ end_time: '2026-03-05T12:00:08.999999' }), []],
    ['ids as a list', () => ({ id: [ids[0], ids[2], randomUUID()] }), ['grandchild', 'root']],
    ['one id without a list', () => ({ id: ids[1] }), ['child']],
    ['one project without a list', () => ({ session: runs.projectId }), ['grandchild', 'child', 'root']],
    ['one example without a list', () => ({ reference_example: randomUUID() }), []],
    ['an unknown project', () => ({ session: [randomUUID()] }), []],
  ])('%s', async (_name, body, expected) => {
    const answer = await query(body());
    expect(answer.status).toBe(200);
    expect(namesOf(answer)).toEqual(expected);
  });

  it('follow the cursor from page to page', async () => {
    const first = await query({ limit: 2, select: ['name'] });
    const { next } = first.body.cursors as { next: string };
    const second = await query({ limit: 2, select: ['name'], cursor: next });
    expect([namesOf(first), namesOf(second)]).toEqual([['grandchild', 'child'], ['root']]);
    expect((await query({ limit: 2, cursor: next, order: 'asc' })).status).toBe(400);
    expect((await query({ limit: 2, skip_pagination: true })).body.cursors).toEqual({ next: null });
  });
});

describe('an invalid query', () => {
  const evil = "x') OR 1=1; DROP TABLE runs; --";
  it.each<[string, unknown, number]>([
    ...['filter', 'trace_filter', 'tree_filter', 'search_filter'].map((name): [string, unknown, number] => [
      `SQL as a ${name}`,
      { [name]: evil },
      400,
    ]),
    ...['no', '0', 'off', 'false'].map((word): [string, unknown, number] => [
      `a ${word}`,
      { search_filter: word },
      400,
    ]),
    ['a filter that is not a text', { filter: {} }, 422],
    ['a text that is too long', { query: 'x'.repeat(1_001) }, 422],
    ['an invalid cursor', { cursor: evil }, 400],
    ['contradicting conditions', { execution_order: 1, is_root: false }, 400],
    ['SQL as an id', { id: [evil] }, 422],
    ['SQL as a trace', { trace: evil }, 422],
    ['SQL as a parent', { parent_run: evil }, 422],
    ['SQL as a project', { session: [evil] }, 422],
    ['SQL as an example', { reference_example: [evil] }, 422],
    ['SQL as a run type', { run_type: evil }, 422],
    ['SQL as an order', { order: `asc, ${evil}` }, 422],
    ['SQL as a time', { start_time: evil }, 422],
    ['SQL as an end', { end_time: evil }, 422],
    ['SQL as a selection', { select: ['name', evil] }, 422],
    ['an unknown field', { select: ['constructor'] }, 422],
    ['a date that does not exist', { start_time: '2026-02-30T00:00:00Z' }, 422],
    ['a limit of 0', { limit: 0 }, 422],
    ['a negative limit', { limit: -1 }, 422],
    ['a fractional limit', { limit: 1.5 }, 422],
    ['a limit that is not a number', { limit: 'ten' }, 422],
    ['too many ids', { id: Array(10_001).fill(randomUUID()) }, 422],
    ['another execution order', { execution_order: 2 }, 422],
    ['an array', [], 422],
    ['invalid JSON', '{', 422],
  ])('%s', async (_name, body, status) => {
    const answer = await query(body);
    expect(answer.status).toBe(status);
    expect(answer.body).toHaveProperty('detail');
    expect(await query({})).toMatchObject({ status: 200 });
  });

  it('gives the position in a filter, and the closest name', async () => {
    const { body } = await query({ trace_filter: 'eq(latancy, 5)' });
    expect(body.detail).toBe('Invalid trace_filter at character 4: unknown field `latancy`, did you mean `latency`.');
  });
});

describe('validation', () => {
  const validate = (body: unknown, key?: string) =>
    runs.ask({ url: '/runs/query/validate', body, ...(key && { key }) });
  it('lists what is wrong with each filter, with the messages of the query', async () => {
    const bad = 'eq(name "x")';
    const { status, body } = await validate({ session: [runs.projectId], filter: bad, tree_filter: 'eq(name, "x")' });
    const message = 'Invalid filter at character 9: found `"x"`, expected `,`.';
    expect([status, body]).toEqual([200, { valid: false, errors: [{ field: 'filter', message }] }]);
    expect((await query({ filter: bad })).body.detail).toBe(message);
  });

  it('accepts a valid query, also without a key', async () => {
    const valid = { filter: 'eq(name, "x")', trace_filter: null, tree_filter: '' };
    expect((await validate(valid)).body).toEqual({ valid: true, errors: [] });
    const answer = await runs.api.server.inject({ url: '/api/v1/runs/query/validate', method: 'POST', payload: valid });
    expect([answer.statusCode, answer.json()]).toEqual([200, { valid: true, errors: [] }]);
  });

  it('lists fields of a wrong type with the filters', async () => {
    const { status, body } = await validate({ trace: 'x', limit: 0, filter: 'eq(', tree_filter: 5, other: 1 });
    expect([status, body]).toEqual([
      200,
      {
        valid: false,
        errors: [
          { field: 'trace', message: 'must be a UUID' },
          { field: 'tree_filter', message: 'must be string' },
          { field: 'limit', message: 'must be >= 1' },
          { field: 'filter', message: expect.stringMatching(/^Invalid filter at character/) },
        ],
      },
    ]);
    expect((await validate([])).status).toBe(422);
  });
});

it('returns nothing to other workspaces', async () => {
  for (const key of [runs.theirs.workspaceKeys[0], runs.ours.workspaceKeys[1]]) {
    const filters = ['filter', 'trace_filter', 'tree_filter'].map((name) => ({ [name]: `eq(trace_id, "${ids[0]}")` }));
    const asked = [
      {},
      { session: [runs.projectId] },
      { id: ids },
      { trace: ids[0] },
      { parent_run: ids[0] },
      ...filters,
    ];
    for (const body of asked) expect((await query(body, key)).body.runs).toEqual([]);
    const { next } = (await query({ limit: 1 })).body.cursors as { next: string };
    expect((await query({ cursor: next }, key)).body.runs).toEqual([]);
  }
  expect((await query({}, runs.keyWithoutRunsRead)).status).toBe(403);
});

it('responds 503 with retry if ClickHouse is unavailable', async () => {
  const { services } = runs.api;
  const { clickhouse } = services;
  // Nothing listens on port 1.
  const down = openClickHouse({
    url: 'http://nobody@127.0.0.1:1/none',
    logger,
    timeoutMs: 1_000,
  });
  Object.assign(services, { clickhouse: down });
  const answer = await query({});
  Object.assign(services, { clickhouse });
  await down.close();
  expect(answer.status).toBe(503);
});

describe('the stock JavaScript client', () => {
  const client = forSuite(() => openClient(runs.api, runs.ours.workspaceKeys[0]));

  it('reads a run with its tree', async () => {
    const root = await client.readRun(ids[0] as string, { loadChildRuns: true });
    expect(root.start_time).toBe('2026-03-05T12:00:00.000000Z');
    expect(root.child_runs?.map((run) => run.name)).toEqual(['child']);
    expect(root.child_runs?.[0]?.child_runs?.map((run) => run.name)).toEqual(['grandchild']);
  });

  it('lists runs by project name, id, error, and over pages', async () => {
    const list = async (options: Parameters<Client['listRuns']>[0]) => {
      const names: string[] = [];
      for await (const run of client.listRuns(options)) names.push(run.name);
      return names;
    };
    expect(await list({ projectName: runs.projectName })).toEqual(['grandchild', 'child', 'root']);
    expect(await list({ id: [ids[1] as string] })).toEqual(['child']);
    expect(await list({ projectId: runs.projectId, error: true })).toEqual(['grandchild']);
    expect(await list({ projectId: runs.projectId, isRoot: true, startTime: new Date(0), limit: 500 })).toEqual([
      'root',
    ]);
    expect(await list({ projectId: runs.projectId, limit: 2, order: 'asc' })).toEqual(['root', 'child']);
  });

  it('lists runs by filter, on the run, its root and its tree', async () => {
    const list = async (options: Parameters<Client['listRuns']>[0]) => {
      const names: string[] = [];
      for await (const run of client.listRuns({ projectId: runs.projectId, ...options })) names.push(run.name);
      return names;
    };
    expect(await list({ filter: 'and(eq(run_type, "chain"), neq(error, null))' })).toEqual(['grandchild']);
    expect(await list({ filter: 'eq(is_root, false)', traceFilter: 'eq(name, "root")' })).toEqual([
      'grandchild',
      'child',
    ]);
    expect(await list({ isRoot: true, treeFilter: 'search("boom")' })).toEqual(['root']);
    await expect(list({ filter: 'eq(latancy, 5)' })).rejects.toThrow('did you mean `latency`');
  });
});
