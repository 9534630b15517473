/** Feedback that is too large for one response, and feedback of many experiments. */
import { randomUUID } from 'node:crypto';
import { parse } from 'csv-parse/sync';
import { beforeAll, expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { until } from '../../../infra/until.ts';
import { addOrganization, askAs, startApi } from '../../start-api.ts';

const comment = 'x'.repeat(40_000);
const experiments = 4_000;
const api = forSuite(() => startApi({ config: { maxPageBytes: 100_000, patchWaitMs: 0 } }));
const acme = forSuite(() => addOrganization(api.database, 'acme'));
let datasetId: string;
let runId: string;
let [traceToken, datasetToken] = ['', ''];

const ask = askAs(api, acme);

beforeAll(async () => {
  datasetId = (await ask('POST', '/datasets', { name: 'shared' })).body.id;
  const session_id = (await ask('POST', '/sessions', { name: 'first', reference_dataset_id: datasetId })).body.id;
  runId = randomUUID();
  const run = {
    id: runId,
    name: 'run',
    run_type: 'chain',
    inputs: {},
    start_time: new Date().toISOString(),
    session_id,
  };
  expect((await ask('POST', '/runs', run)).status).toBe(202);
  await api.settled();
  for (const score of [1, 2, 3]) await ask('POST', '/feedback', { run_id: runId, key: 'large', score, comment });
  await api.settled();
  traceToken = (await ask('PUT', `/runs/${runId}/share`, { run_id: runId })).body.share_token;
  datasetToken = (await ask('PUT', `/datasets/${datasetId}/share?share_projects=true`, {})).body.share_token;
});

const readLists: [string, () => string][] = [
  ['of a workspace', () => '/feedback'],
  ['of a shared trace', () => `/public/${traceToken}/feedbacks`],
  ['of the experiments on a shared dataset', () => `/public/${datasetToken}/datasets/feedback`],
];

/** Reads without a key where none is needed, and again if the rate limit refuses it. */
async function read(url: string) {
  let answer = await ask('GET', url);
  await until('a read to be accepted', async () => {
    if (answer.status === 429) answer = await ask('GET', url);
    return answer.status !== 429;
  });
  return answer;
}

it.each(readLists)('a list %s is refused if it is too large', async (_, url) => {
  expect(await read(url())).toMatchObject({ status: 422, body: { code: 'ANSWER_TOO_LARGE' } });
  const { status, body } = await read(`${url()}?limit=2`);
  expect([status, body.map(({ score }: { score: number }) => score)]).toEqual([200, [3, 2]]);
});

it.each(readLists.slice(1))('lists %s are limited', async (_, url) => {
  const answers = await Promise.all(Array.from({ length: 40 }, () => ask('GET', `${url()}?limit=1`)));
  expect(answers.some(({ status }) => status === 429)).toBe(true);
});

it('the export of a queue has all feedback of a run', async () => {
  const queueId = (await ask('POST', '/annotation-queues', { name: 'large' })).body.id;
  const added = await ask('POST', `/v1/platform/annotation-queues/${queueId}/items`, { items: [{ run_id: runId }] });
  const [item] = added.body.items;
  const url = `/v1/platform/annotation-queues/items/${item.id}/status`;
  expect((await ask('POST', url, { status: 'completed' })).status).toBeLessThan(300);
  const { body } = await api.server.inject({
    method: 'POST',
    url: `/annotation-queues/${queueId}/export`,
    headers: { 'x-api-key': acme.adminKey },
    payload: { include_annotator_detail: true },
  });
  const [row] = parse(body, { columns: true }) as { feedback: string }[];
  expect(JSON.parse(row?.feedback ?? '')).toMatchObject([3, 2, 1].map((score) => ({ score, comment })));
});

it('is found among many experiments of a shared dataset', async () => {
  await api.database.execute(
    `INSERT INTO projects (id, workspace_id, name, reference_dataset_id)
     SELECT gen_random_uuid(), $1, 'experiment ' || n, $2 FROM generate_series(1, ${experiments}) AS n`,
    [acme.workspaceIds[0], datasetId],
  );
  const { status, body } = await read(`/public/${datasetToken}/datasets/feedback?limit=1`);
  expect([status, body.length]).toEqual([200, 1]);
});
