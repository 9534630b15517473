import { randomUUID } from 'node:crypto';
import { evaluate } from 'langsmith/evaluation';
import type { KVMap } from 'langsmith/schemas';
import { expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { openClient } from '../../open-client.ts';
import { addOrganization, askAs, startApi } from '../../start-api.ts';

/** Experiments of the stock SDK: `evaluate()` unmodified. */

const api = forSuite(() => startApi());
const acme = forSuite(() => addOrganization(api.database, 'acme'));

const client = forSuite(() => openClient(api, acme.adminKey));

const ask = askAs(api, acme);

async function addDataset() {
  const dataset = await client.createDataset(`sums ${randomUUID()}`);
  const examples = [1, 2, 3].map((n) => ({
    ...{ dataset_id: dataset.id, inputs: { n }, outputs: { sum: n + 1 }, split: n === 3 ? 'hard' : 'easy' },
    attachments: {
      note: ['text/plain', new TextEncoder().encode(String(n))] as ['text/plain', Uint8Array<ArrayBuffer>],
    },
  }));
  await client.createExamples(examples);
  return dataset;
}

interface Outputs {
  readonly outputs: KVMap;
  readonly referenceOutputs?: KVMap;
}

it('runs a target over a dataset, with evaluators, summary evaluators and repetitions', async () => {
  const dataset = await addDataset();
  const results = await evaluate(async ({ n }: { n: number }) => ({ sum: n === 3 ? 0 : n + 1 }), {
    client,
    data: dataset.name,
    experimentPrefix: 'first',
    metadata: { model: 'm' },
    numRepetitions: 2,
    evaluators: [
      ({ outputs, referenceOutputs }: Outputs) => ({
        key: 'correct',
        score: outputs.sum === referenceOutputs?.sum ? 1 : 0,
      }),
    ],
    summaryEvaluators: [({ runs }: { runs: unknown[] }) => ({ key: 'count', score: runs.length })],
  });
  expect(results.results).toHaveLength(6);
  for (const { run, example, evaluationResults } of results.results) {
    expect(run.reference_example_id).toBe(example.id);
    expect(evaluationResults.results).toMatchObject([{ key: 'correct', score: example.inputs.n === 3 ? 0 : 1 }]);
  }
  expect(results.summaryResults.results).toMatchObject([{ key: 'count', score: 6 }]);
  await client.awaitPendingTraceBatches();
  await api.settled();

  const project = await client.readProject({ projectName: results.experimentName });
  expect(project).toMatchObject({ reference_dataset_id: dataset.id });
  expect(project.extra).toMatchObject({ metadata: { model: 'm', dataset_version: expect.any(String) } });
  expect((await client.readDataset({ datasetId: dataset.id })) as object).toMatchObject({
    session_count: 1,
    last_session_start_time: project.start_time,
  });
  const withStats = await client.readProject({ projectName: results.experimentName, includeStats: true });
  expect(withStats).toMatchObject({ session_feedback_stats: { count: { n: 1, avg: 6 } } });
  const [{ id: runId } = { id: '' }] = (await ask('POST', '/runs/query', { session: [project.id], limit: 1 })).body
    .runs;
  expect(await client.readRun(runId)).toMatchObject({ reference_dataset_id: dataset.id, in_dataset: false });
  const [listed] = (await ask('GET', `/sessions?reference_dataset=${dataset.id}`)).body;
  expect(listed.id).toBe(project.id);
  const atVersion = async (datasetVersion: string) => {
    const found: string[] = [];
    for await (const { id } of client.listProjects({ datasetVersion })) found.push(id);
    return found;
  };
  expect(await atVersion(String(project.extra?.metadata.dataset_version))).toEqual([project.id]);
  expect(await atVersion('2020-01-01T00:00:00.000Z')).toEqual([]);
  const version = encodeURIComponent(String(project.extra?.metadata.dataset_version));
  expect((await ask('GET', `/api/v2/sessions?dataset_version=${version}`)).body.items).toHaveLength(1);

  const feedback = (await ask('GET', `/feedback?session=${project.id}`)).body as { key: string; score: number }[];
  const count = (key: string) => feedback.filter((each) => each.key === key).length;
  expect([count('correct'), count('count')]).toEqual([6, 1]);

  const { examples } = await readExamplesWithRuns(dataset.id, { session_ids: [project.id] });
  expect(examples).toHaveLength(3);
  for (const { inputs, runs } of examples) {
    expect(runs).toHaveLength(2);
    for (const run of runs) {
      expect(run).toMatchObject({ session_id: project.id, outputs: { sum: inputs.n === 3 ? 0 : inputs.n + 1 } });
      expect(run.feedback_stats.correct).toMatchObject({ n: 1, avg: inputs.n === 3 ? 0 : 1 });
    }
  }
});

interface ExampleWithRuns {
  readonly id: string;
  readonly inputs: { n: number };
  // biome-ignore lint/suspicious/noExplicitAny: runs have many fields.
  readonly runs: any[];
}

async function readExamplesWithRuns(datasetId: string, body: object) {
  const answer = await ask('POST', `/datasets/${datasetId}/runs`, body);
  return { status: answer.status, examples: answer.body as ExampleWithRuns[] };
}

it('runs over a split at a version, with attachments', async () => {
  const dataset = await addDataset();
  const { as_of } = await client.readDatasetVersion({ datasetId: dataset.id, tag: 'latest' });
  await client.createExample({ dataset_id: dataset.id, inputs: { n: 9 }, split: 'easy' });
  const seen: string[] = [];
  const target = async (_: object, config?: { attachments?: Record<string, { presigned_url: string }> }) => {
    const response = await fetch(config?.attachments?.note?.presigned_url ?? '');
    seen.push(await response.text());
    return {};
  };
  const data = client.listExamples({ datasetId: dataset.id, asOf: as_of, splits: ['easy'], includeAttachments: true });
  const { results } = await evaluate(target, { client, data, includeAttachments: true });
  expect(results).toHaveLength(2);
  expect(seen.sort()).toEqual(['1', '2']);
});

it('pages examples of several experiments, and refuses bad input', async () => {
  const dataset = await addDataset();
  const names: string[] = [];
  for (const sum of [1, 2]) {
    const { experimentName } = await evaluate(async () => ({ sum }), { client, data: dataset.name });
    names.push(experimentName);
  }
  await client.awaitPendingTraceBatches();
  await api.settled();
  const projects = await Promise.all(names.map((projectName) => client.readProject({ projectName })));
  const session_ids = projects.map(({ id }) => id);
  const { examples: first } = await readExamplesWithRuns(dataset.id, { session_ids, limit: 2 });
  const { examples: second } = await readExamplesWithRuns(dataset.id, { session_ids, limit: 2, offset: 2 });
  expect([first.length, second.length]).toEqual([2, 1]);
  for (const { runs } of [...first, ...second]) expect(runs.map(({ outputs }) => outputs.sum).sort()).toEqual([1, 2]);
  const example_ids = [second[0]?.id];
  const { examples: alone } = await readExamplesWithRuns(dataset.id, { session_ids, example_ids });
  expect(alone.map(({ id, runs }) => [id, runs.length])).toEqual([[second[0]?.id, 2]]);
  const { examples: previewed } = await readExamplesWithRuns(dataset.id, { session_ids, example_ids, preview: true });
  const preview = {
    inputs_preview: JSON.stringify(previewed[0]?.runs[0].inputs),
    outputs: { sum: expect.any(Number) },
  };
  expect(previewed[0]?.runs[0]).toMatchObject({ ...preview, outputs_preview: expect.stringContaining('sum') });
  expect(alone[0]?.runs[0]).not.toHaveProperty('inputs_preview');
  expect((await readExamplesWithRuns(dataset.id, { session_ids: [] })).status).toBe(422);
  expect((await readExamplesWithRuns(randomUUID(), { session_ids })).status).toBe(404);
  expect((await readExamplesWithRuns(dataset.id, { session_ids: [randomUUID()] })).status).toBe(404);
  const other = await client.createProject({ projectName: randomUUID() });
  expect((await readExamplesWithRuns(dataset.id, { session_ids: [other.id] })).status).toBe(404);
});

it('reads the large runs of a page in parts, because clients cannot choose its size', { timeout: 60_000 }, async () => {
  const dataset = await addDataset();
  const examples = (await ask('GET', `/examples?dataset=${dataset.id}`)).body as { id: string }[];
  const { body: experiment } = await ask('POST', '/sessions', { name: randomUUID(), reference_dataset_id: dataset.id });
  const times = { start_time: new Date().toISOString(), end_time: new Date().toISOString() };
  const run = { name: 'run', run_type: 'chain', inputs: { text: 'x'.repeat(24_000_000) }, ...times };
  for (const { id: reference_example_id } of examples)
    expect((await ask('POST', '/runs', { ...run, session_id: experiment.id, reference_example_id })).status).toBe(202);
  await api.settled();
  const { status, examples: found } = await readExamplesWithRuns(dataset.id, { session_ids: [experiment.id] });
  expect(status).toBe(200);
  expect(found.map(({ id, runs }) => [id, runs.length])).toEqual(examples.map(({ id }) => [id, 1]));
});

it('lists the root run of each trace, also if runs below it name the example, as in the guide to evaluation by HTTP', async () => {
  const dataset = await addDataset();
  const examples = (await ask('GET', `/examples?dataset=${dataset.id}&order=id`)).body as { id: string }[];
  const { body: experiment } = await ask('POST', '/sessions', { name: randomUUID(), reference_dataset_id: dataset.id });
  const send = async (exampleId: string, name: string, parent: object = {}) => {
    const id = randomUUID();
    const times = { start_time: new Date().toISOString(), end_time: new Date().toISOString() };
    const run = { id, name, run_type: 'chain', inputs: {}, ...times, ...parent };
    const links = { session_id: experiment.id, reference_example_id: exampleId };
    expect((await ask('POST', '/runs', { ...run, ...links })).status).toBe(202);
    return id;
  };
  for (const [index, { id }] of examples.entries()) {
    const root = await send(id, 'root');
    const call = await send(id, 'call', { parent_run_id: root });
    for (const [run_id, score] of [
      [root, index],
      [call, -10 * index],
    ])
      expect((await ask('POST', '/feedback', { run_id, key: 'score', score })).status).toBe(200);
  }
  const session_ids = [experiment.id];
  const namesOf = (found: { runs: { name: string }[] }[]) => found.map(({ runs }) => runs.map(({ name }) => name));
  expect(namesOf((await readExamplesWithRuns(dataset.id, { session_ids })).examples)).toEqual(Array(3).fill(['root']));
  const v2 = { experiment_ids: session_ids, selects: ['NAME'] };
  const { body } = await ask('POST', `/v2/datasets/${dataset.id}/experiment-runs`, v2);
  expect(namesOf(body.items)).toEqual(Array(3).fill(['root']));
  const sorted = await readExamplesWithRuns(dataset.id, { session_ids, sort_params: { sort_by: 'score' } });
  expect(sorted.examples.map(({ id }) => id)).toEqual(examples.map(({ id }) => id).reverse());
  const filters = { [experiment.id]: ['eq(name, "call")'] };
  expect((await readExamplesWithRuns(dataset.id, { session_ids, filters })).examples).toEqual([]);
});
