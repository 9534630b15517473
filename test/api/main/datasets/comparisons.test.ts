import { randomUUID } from 'node:crypto';
import { evaluate, evaluateComparative } from 'langsmith/evaluation';
import type { Example, Run } from 'langsmith/schemas';
import { traceable } from 'langsmith/traceable';
import { beforeAll, describe, expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { openClient } from '../../open-client.ts';
import { addOrganization, startApi } from '../../start-api.ts';

/** Comparative experiments, and examples with their runs in version 2 of the API. */

const api = forSuite(() => startApi());
const acme = forSuite(() => addOrganization(api.database, 'acme'));
let datasetId: string;
let experiments: Awaited<ReturnType<typeof evaluate>>[];
let names: string[];
let ids: [string, string];

const client = forSuite(() => openClient(api, acme.adminKey));
beforeAll(async () => {
  const dataset = await client.createDataset(`sums ${randomUUID()}`);
  datasetId = dataset.id;
  await client.createExamples(
    [1, 2, 3].map((n) => ({ dataset_id: datasetId, inputs: { n }, outputs: { sum: n + 1 } })),
  );
  experiments = [];
  for (const more of [0, 1]) {
    const add = traceable(async (n: number) => n + more, { name: 'add' });
    const target = async ({ n }: { n: number }) => ({ sum: await add(n) });
    experiments.push(await evaluate(target, { client, data: dataset.name }));
  }
  names = experiments.map(({ experimentName }) => experimentName);
  await client.awaitPendingTraceBatches();
  await api.settled();
  const projects = await Promise.all(names.map((projectName) => client.readProject({ projectName })));
  ids = projects.map(({ id }) => id) as [string, string];
});

// biome-ignore lint/suspicious/noExplicitAny: each operation has its own response type.
type Body = any;
const ask = (
  method: 'GET' | 'POST' | 'DELETE',
  url: string,
  payload?: object,
): Promise<{ status: number; body: Body }> => api.ask(acme.adminKey, method, url, payload);

it('evaluateComparative of the stock SDK scores the runs of two experiments', async () => {
  const preferHigher = (runs: Run[], _?: Example) => {
    const sums = runs.map(({ outputs }) => outputs?.sum as number);
    return {
      key: 'preferred',
      scores: Object.fromEntries(runs.map(({ id }, index) => [id, sums[index] === Math.max(...sums) ? 1 : 0])),
    };
  };
  const compared = await evaluateComparative(names, { client, evaluators: [preferHigher], description: 'about' });
  expect(compared.results).toHaveLength(3);
  await client.awaitPendingTraceBatches();
  await api.settled();

  const listed = (await ask('GET', `/datasets/${datasetId}/comparative?name=${compared.experimentName}`)).body;
  expect(listed).toMatchObject([
    {
      name: compared.experimentName,
      description: 'about',
      reference_dataset_id: datasetId,
      experiments_info: ids.map((id, index) => ({ id, name: names[index] })),
      feedback_stats: { preferred: { n: 6, avg: 0.5 } },
    },
  ]);
  const id = listed[0].id;
  const feedback = (await ask('GET', `/feedback?comparative_experiment_id=${id}`)).body;
  expect(feedback).toHaveLength(6);
  expect(new Set(feedback.map((each: Body) => each.comparative_experiment_id))).toEqual(new Set([id]));

  // The feedback of another comparison of the same runs does not count.
  const other = await ask('POST', '/datasets/comparative', { experiment_ids: ids, name: 'other' });
  const run = feedback[0].run_id;
  const more = { run_id: run, key: 'preferred', score: 0, comparative_experiment_id: other.body.id };
  expect((await ask('POST', '/feedback', more)).status).toBe(200);
  await api.settled();
  const countFeedback = async (comparative_experiment_id?: string) => {
    const body = { session_ids: ids, comparative_experiment_id };
    const { body: examples } = await ask('POST', `/datasets/${datasetId}/runs`, body);
    const runs = examples.flatMap((example: Body) => example.runs) as Body[];
    return runs.map(({ feedback_stats }) => feedback_stats?.preferred?.n ?? 0).reduce((sum, n) => sum + n, 0);
  };
  expect([await countFeedback(id), await countFeedback(other.body.id), await countFeedback()]).toEqual([6, 1, 7]);
});

it('evaluateComparative of the stock SDK takes the results of two evaluations, with nested runs in random order', async () => {
  const nested: unknown[] = [];
  const preferFirst = ({ runs }: { runs: Run[] }) => {
    nested.push(...runs.map(({ child_runs = [] }) => child_runs.map(({ name }) => name)));
    return { key: 'first', scores: Object.fromEntries(runs.map(({ id }, index) => [id, Number(index === 0)])) };
  };
  const options = { randomizeOrder: true, loadNested: true, maxConcurrency: 2 };
  const compared = await evaluateComparative(experiments, { client, evaluators: [preferFirst], ...options });
  expect(compared.results).toHaveLength(3);
  expect(nested).toEqual(Array.from({ length: 6 }, () => ['add']));
});

it('evaluateComparative of the stock SDK names a comparison after all its experiments', async () => {
  const long = ['a', 'b'].map((text) => `${text.repeat(500)} ${randomUUID().slice(0, 8)}`);
  const [example] = (await ask('GET', `/examples?dataset=${datasetId}`)).body;
  for (const projectName of long) {
    const { id: session_id } = await client.createProject({ projectName, referenceDatasetId: datasetId });
    const times = { start_time: new Date().toISOString(), end_time: new Date().toISOString() };
    const run = { name: 'run', run_type: 'chain', inputs: {}, session_id, reference_example_id: example.id, ...times };
    expect((await ask('POST', '/runs', run)).status).toBe(202);
  }
  await api.settled();
  const none = () => ({ key: 'none', scores: {} });
  const { experimentName } = await evaluateComparative(long as [string, string], { client, evaluators: [none] });
  expect(experimentName.slice(0, long.join(' vs. ').length)).toBe(long.join(' vs. '));
  const { body } = await ask('GET', `/datasets/${datasetId}/comparative?name=${encodeURIComponent(experimentName)}`);
  expect(body).toHaveLength(1);
});

describe('a comparative experiment', () => {
  it('is created with the dataset of its experiments, listed, and deleted', async () => {
    const word = randomUUID();
    const sent = {
      id: randomUUID(),
      name: `${word} b`,
      extra: { metadata: { a: 1 } },
      created_at: '2026-01-02T03:04:05Z',
    };
    const made = await ask('POST', '/datasets/comparative', { ...sent, experiment_ids: [ids[1], ids[0], ids[1]] });
    expect(made).toMatchObject({
      status: 200,
      body: {
        ...sent,
        description: null,
        tenant_id: acme.workspaceIds[0],
        reference_dataset_id: datasetId,
        created_at: '2026-01-02T03:04:05.000000Z',
      },
    });
    await ask('POST', '/datasets/comparative', { name: `${word} a`, experiment_ids: ids });
    const list = async (query: string) => {
      const { body } = await ask(
        'GET',
        `/datasets/${datasetId}/comparative?name_contains=${word.toUpperCase()}&${query}`,
      );
      return body.map(({ name }: Body) => name.slice(-1)).join();
    };
    expect(await list('')).toBe('a,b');
    expect(await list('sort_by=name')).toBe('b,a');
    expect(await list('sort_by=name&sort_by_desc=false&limit=1&offset=1')).toBe('b');
    expect(await list(`id=${sent.id}`)).toBe('b');
    expect((await ask('DELETE', `/datasets/comparative/${sent.id}`)).status).toBe(200);
    expect((await ask('DELETE', `/datasets/comparative/${sent.id}`)).status).toBe(404);
    expect(await list('')).toBe('a');
  });

  it('needs experiments on one dataset', async () => {
    const other = await client.createDataset(randomUUID());
    const project = await client.createProject({ projectName: randomUUID() });
    const otherDatasetExperiment = { name: randomUUID(), reference_dataset_id: other.id };
    const { body: foreign } = await ask('POST', '/sessions', otherDatasetExperiment);
    const taken = (await ask('POST', '/datasets/comparative', { experiment_ids: ids })).body.id;
    for (const [payload, status] of [
      [{ experiment_ids: [] }, 422],
      [{ experiment_ids: [randomUUID()] }, 404],
      [{ experiment_ids: [ids[0], project.id] }, 400],
      [{ experiment_ids: [ids[0], foreign.id] }, 400],
      [{ experiment_ids: ids, reference_dataset_id: other.id }, 400],
      [{ experiment_ids: ids, name: '\u0000' }, 422],
      [{ experiment_ids: ids, id: taken }, 200],
      [{ experiment_ids: ids, id: taken, name: 'other' }, 409],
    ] as const) {
      const answer = await ask('POST', '/datasets/comparative', payload);
      expect([payload, answer.status]).toEqual([payload, status]);
    }
    expect((await ask('GET', `/datasets/${randomUUID()}/comparative`)).status).toBe(404);
    const wrong = { session_ids: [foreign.id], comparative_experiment_id: taken };
    expect((await ask('POST', `/datasets/${other.id}/runs`, wrong)).status).toBe(404);
  });
});

describe('experiment runs of version 2', () => {
  const query = (payload: object) => ask('POST', `/v2/datasets/${datasetId}/experiment-runs`, payload);

  it('are read by the stock SDK, page by page, at one version', async () => {
    const seen: Body[] = [];
    const selects = ['OUTPUTS', 'PROJECT_ID', 'FEEDBACK_STATS'] as const;
    const body = { experiment_ids: ids, page_size: 2, selects: [...selects] };
    for await (const example of client.datasets.experimentRuns.query(datasetId, body)) {
      // A write between two pages does not change them.
      if (seen.length === 0) await client.createExample({ dataset_id: datasetId, inputs: { n: 9 } });
      seen.push(example);
    }
    expect(seen.map(({ inputs }) => inputs.n).sort()).toEqual([1, 2, 3]);
    for (const { id, inputs, runs } of seen) {
      expect(runs.map(({ project_id }: Body) => project_id).sort()).toEqual([...ids].sort());
      for (const run of runs) {
        expect(run.outputs.sum - inputs.n).toBe(run.project_id === ids[0] ? 0 : 1);
        expect(run.reference_example_id).toBe(id);
        expect(run).not.toHaveProperty('name');
      }
    }
  });

  it('have a cursor only if there is another page', async () => {
    const all = await query({ experiment_ids: [ids[0]] });
    expect(all.body).toMatchObject({ next_cursor: null, has_more: false });
    expect(Object.keys(all.body.items.at(-1).runs[0]).sort()).toEqual(['id', 'reference_example_id']);
    const example_ids = [all.body.items.at(-1).id];
    expect((await query({ experiment_ids: [ids[0]], example_ids })).body.items).toHaveLength(1);
  });

  it('are refused for unknown experiments and broken cursors', async () => {
    for (const [payload, status] of [
      [{ experiment_ids: [] }, 422],
      [{ experiment_ids: [randomUUID()] }, 404],
      [{ experiment_ids: ids, cursor: 'x' }, 400],
      [{ experiment_ids: ids, page_size: 101 }, 422],
      [{ experiment_ids: ids, selects: ['NOTHING'] }, 422],
      [{ experiment_ids: ids, comparative_experiment_id: randomUUID() }, 404],
      [{ experiment_ids: ids, sort: { by: 'feedback.right' } }, 400],
      [{ experiment_ids: [ids[0]], sort: { by: 'right', order: 'up' } }, 422],
      [{ experiment_ids: ids, filters: { [randomUUID()]: ['eq(name, "x")'] } }, 400],
      [{ experiment_ids: ids, filters: { [ids[0]]: ['eq(name'] } }, 400],
    ] as const) {
      expect([payload, (await query(payload)).status]).toEqual([payload, status]);
    }
  });
});

describe('filters by experiment', () => {
  const split = (sum: number) => `eq(output_key, "sum"), eq(output_value, ${sum})`;
  // The first experiment answers n, the second n + 1.
  it.each<[string, () => Record<string, string[]>, number[]]>([
    ['of one experiment', () => ({ [ids[0]]: [`or(and(${split(2)}), and(${split(3)}))`] }), [2, 3]],
    [
      'of two experiments apply together',
      () => ({ [ids[0]]: [`and(${split(2)})`], [ids[1].toUpperCase()]: [`and(${split(3)})`] }),
      [2],
    ],
    ['in a list apply together', () => ({ [ids[0]]: [`and(${split(2)})`, 'eq(is_root, true)'] }), [2]],
    ['that match nothing', () => ({ [ids[0]]: [`and(${split(2)})`], [ids[1]]: [`and(${split(2)})`] }), []],
    ['without expressions', () => ({ [ids[0]]: [] }), [1, 2, 3]],
  ])('%s', async (_, filters, numbers) => {
    const example_ids = (await ask('GET', `/examples?dataset=${datasetId}`)).body
      .filter(({ inputs }: Body) => inputs.n <= 3)
      .map(({ id }: Body) => id);
    const v1 = await ask('POST', `/datasets/${datasetId}/runs`, { session_ids: ids, filters: filters(), example_ids });
    expect(v1.body.map(({ inputs }: Body) => inputs.n).sort()).toEqual(numbers);
    const body = { experiment_ids: ids, filters: filters(), page_size: 1, example_ids };
    const found: number[] = [];
    for (let cursor: string | undefined; ; ) {
      const { body: page } = await ask('POST', `/v2/datasets/${datasetId}/experiment-runs`, { ...body, cursor });
      for (const { inputs, runs } of page.items) {
        expect(runs).toHaveLength(2);
        found.push(inputs.n);
      }
      if (!page.has_more) break;
      cursor = page.next_cursor;
    }
    expect(found.sort()).toEqual(numbers);
  });
});

describe('examples sorted by score', () => {
  const key = `right ${randomUUID()}`;
  let example_ids: string[];
  let comparisonId: string;

  beforeAll(async () => {
    const examples = (await ask('GET', `/examples?dataset=${datasetId}`)).body as Body[];
    example_ids = examples.filter(({ inputs }) => inputs.n <= 3).map(({ id }) => id);
    comparisonId = (await ask('POST', '/datasets/comparative', { experiment_ids: ids })).body.id;
    const { body } = await ask('POST', `/datasets/${datasetId}/runs`, { session_ids: ids, example_ids });
    const rate = async (n: number, experiment: number, score: number | boolean, more = {}) => {
      const { runs } = body.find(({ inputs }: Body) => inputs.n === n);
      const run = runs.find(({ session_id }: Body) => session_id === ids[experiment]);
      expect((await ask('POST', '/feedback', { run_id: run.id, key, score, ...more })).status).toBe(200);
    };
    // In the first experiment, the averages are 0.5 for 1, 0.4 for 2, and none for 3.
    await rate(1, 0, true);
    await rate(1, 0, 0);
    await rate(2, 0, 0.4);
    await rate(3, 1, 1);
    // Only this one belongs to the comparison: then 3 has 0.1, and the others have none.
    await rate(3, 0, 0.1, { comparative_experiment_id: comparisonId, key: `${key} compared` });
    await api.settled();
  });

  const readV1 = async (sort_params: object, more: object = {}) => {
    const payload = { session_ids: [ids[0]], example_ids, sort_params, ...more };
    const { body, status } = await ask('POST', `/datasets/${datasetId}/runs`, payload);
    return status === 200 ? body.map(({ inputs }: Body) => inputs.n) : status;
  };

  it('have the highest first, and those without a score last in both orders', async () => {
    expect(await readV1({ sort_by: `feedback.${key}` })).toEqual([1, 2, 3]);
    expect(await readV1({ sort_by: key, sort_order: 'ASC' })).toEqual([2, 1, 3]);
    expect(await readV1({ sort_by: key, sort_order: 'ASC' }, { limit: 1, offset: 1 })).toEqual([1]);
    expect(await readV1({ sort_by: key }, { offset: 3 })).toEqual([]);
    expect(await readV1({ sort_by: key }, { session_ids: [ids[1]], limit: 1 })).toEqual([3]);
    expect(
      await readV1({ sort_by: key }, { filters: { [ids[0]]: ['and(eq(output_key, "sum"), eq(output_value, 3))'] } }),
    ).toEqual([3]);
  });

  it('have only the scores of a comparative experiment if it is named', async () => {
    const compared = { sort_by: `${key} compared` };
    expect((await readV1(compared, { comparative_experiment_id: comparisonId }))[0]).toBe(3);
    const others = await readV1({ sort_by: key, sort_order: 'ASC' }, { comparative_experiment_id: comparisonId });
    expect(others).toEqual(await readV1({ sort_by: randomUUID() }));
  });

  it('are refused for several experiments and unknown orders', async () => {
    expect(await readV1({ sort_by: key }, { session_ids: ids })).toBe(400);
    expect(await readV1({ sort_by: key }, { session_ids: [ids[0], ids[0].toUpperCase()], limit: 1 })).toEqual([1]);
    expect(await readV1({ sort_by: key, sort_order: 'up' })).toBe(422);
    expect(await readV1({ sort_order: 'ASC' })).toBe(422);
  });

  it('are read by the stock SDK page by page', async () => {
    const found: number[] = [];
    const body = { experiment_ids: [ids[0]], example_ids, page_size: 1, sort: { by: `feedback.${key}`, order: 'ASC' } };
    for await (const { inputs } of client.datasets.experimentRuns.query(datasetId, body))
      found.push((inputs as Body).n);
    expect(found).toEqual([2, 1, 3]);
  });
});

it('concurrent requests do not exceed the limit of a dataset together', async () => {
  await api.database.execute(
    `INSERT INTO comparative_experiments (id, workspace_id, dataset_id, experiment_ids)
     SELECT gen_random_uuid(), $1, $2, $3::uuid[] FROM generate_series(1, 9999 - (
       SELECT count(*) FROM comparative_experiments WHERE dataset_id = $2))`,
    [acme.workspaceIds[0], datasetId, ids],
  );
  const create = async () => (await ask('POST', '/datasets/comparative', { experiment_ids: ids })).status;
  const statuses = await Promise.all(Array.from({ length: 6 }, create));
  expect(statuses.sort()).toEqual([200, 422, 422, 422, 422, 422]);
});
