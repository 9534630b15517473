/**
 * Lists of records that may be large: a page that is too large for one response is refused before it is loaded into
 * memory.
 */
import { randomUUID } from 'node:crypto';
import { beforeAll, describe, expect, it } from 'vitest';
import { getBodyBudget } from '../../../pipelines/ingest/body/body-budget.ts';
import { forSuite } from '../../for-suite.ts';
import { addOrganization, startApi } from '../start-api.ts';

const api = forSuite(() => startApi());
let key: string;
let organizationId: string;

beforeAll(async () => {
  ({ adminKey: key, id: organizationId } = await addOrganization(api.database, 'acme'));
});

const name = () => `n${randomUUID()}`;
const evaluator = () => ({ name: name(), type: 'code', code_evaluator: { code: 'pass' } });
const repo = () => ({ repo_handle: name(), is_public: false });

const lists: [string, string, string, () => object][] = [
  ['/annotation-queues', 'annotation_queues', 'metadata', () => ({ name: name() })],
  ['/v1/platform/evaluators', 'evaluators', 'definition', evaluator],
  ['/datasets', 'datasets', 'metadata', () => ({ name: name() })],
  ['/repos', 'repos', 'readme', repo],
  ['/sessions', 'projects', 'extra', () => ({ name: name() })],
];

it.each(lists)('%s', async (url, table, column, create) => {
  for (let made = 0; made < 3; made++) expect((await api.ask(key, 'POST', url, create())).status).toBeLessThan(300);
  // Three records of 30 MB each; a response has at most 64 MiB.
  await api.database.execute(`UPDATE ${table} SET ${column} = '{"big":"' || repeat('x', 30000000) || '"}'`);
  const list = (query: string) => api.ask(key, 'GET', `${url}?${query}`);
  expect(await list('limit=3')).toMatchObject({ status: 422, body: { code: 'ANSWER_TOO_LARGE' } });
  const { status, body } = await list('limit=1');
  expect([status, JSON.stringify(body).length > 30_000_000]).toEqual([200, true]);
});

it.each(lists.filter(([url]) => url === '/datasets' || url === '/sessions'))(
  '%s with very many values',
  async (url, table, column, create) => {
    for (let made = 0; made < 2; made++) expect((await api.ask(key, 'POST', url, create())).status).toBeLessThan(300);
    // A page has at most 2,000,000 values.
    await api.database.execute(
      `UPDATE ${table} SET ${column} = jsonb_build_object('a', (SELECT jsonb_agg('{}'::jsonb) FROM generate_series(1, 1100000)))`,
    );
    const list = (query: string) => api.ask(key, 'GET', `${url}?${query}`);
    expect(await list('limit=2')).toMatchObject({ status: 422, body: { code: 'ANSWER_TOO_LARGE' } });
    expect((await list('limit=1')).status).toBe(200);
  },
);

describe('while there is no memory for it', () => {
  const text = 'x'.repeat(3_000_000);
  /** What is left is enough for the body of a request. */
  const smallBytes = 1_000_000;
  const [runId, exampleId] = [randomUUID(), randomUUID()];
  let projectId: string;
  let datasetId: string;
  let experimentId: string;

  beforeAll(async () => {
    ({ id: projectId } = (await api.ask(key, 'POST', '/sessions', { name: name() })).body as { id: string });
    await api.database.execute(`UPDATE projects SET extra = '{"big":"' || repeat('x', 5000000) || '"}' WHERE id = $1`, [
      projectId,
    ]);
    const start = new Date().toISOString();
    const run = {
      ...{ id: runId, trace_id: runId, dotted_order: `${start.replace(/[-:.]/g, '').replace('Z', '000Z')}${runId}` },
      ...{ name: 'run', run_type: 'chain', start_time: start, inputs: { text }, session_id: projectId },
      extra: { metadata: { text } },
    };
    const form = new FormData();
    form.set(`post.${runId}`, new Blob([JSON.stringify(run)], { type: 'application/json' }));
    form.set(`attachment.${runId}.file`, new Blob([text], { type: 'text/plain' }));
    const multipart = new Response(form);
    const headers = { 'x-api-key': key, 'content-type': multipart.headers.get('content-type') ?? '' };
    const payload = Buffer.from(await multipart.arrayBuffer());
    const sent = await api.server.inject({ method: 'POST', url: '/runs/multipart', headers, payload });
    expect(sent.statusCode).toBe(202);
    const feedback = { run_id: runId, key: 'k', comment: text };
    expect((await api.ask(key, 'POST', '/feedback', feedback)).status).toBe(200);
    await api.settled();

    ({ id: datasetId } = (await api.ask(key, 'POST', '/datasets', { name: name() })).body as { id: string });
    const experiment = { name: name(), reference_dataset_id: datasetId };
    ({ id: experimentId } = (await api.ask(key, 'POST', '/sessions', experiment)).body as { id: string });
    const example = { id: exampleId, dataset_id: datasetId, inputs: {} };
    expect((await api.ask(key, 'POST', '/examples', example)).status).toBe(200);
    await api.database.execute(
      `UPDATE examples SET inputs = jsonb_build_object('text', $1::text)::text WHERE id = $2`,
      [text, exampleId],
    );
  });

  const readUrl = async () => {
    const { body } = await api.ask(key, 'GET', `/runs/${runId}`);
    const { s3_urls: urls } = body as { s3_urls: Record<string, { presigned_url: string }> };
    const { pathname, search } = new URL(urls['attachment.file']!.presigned_url, 'http://runlake');
    return pathname + search;
  };
  const download = async (format: string) => {
    const url = `/datasets/${datasetId}/${format}`;
    return (await api.server.inject({ url, headers: { 'x-api-key': key } })).statusCode;
  };
  const ask = async (method: string, path: string, body?: object) => (await api.ask(key, method, path, body)).status;
  it.each<[string, () => Promise<() => Promise<number>>]>([
    ['projects', async () => () => ask('GET', `/sessions?id=${projectId}`)],
    ['runs', async () => () => ask('POST', '/runs/query', { session: [projectId] })],
    ['a run', async () => () => ask('GET', `/runs/${runId}`)],
    ['metadata of runs', async () => () => ask('GET', `/sessions/${projectId}/metadata`)],
    ['feedback', async () => () => ask('GET', '/feedback')],
    ['examples', async () => () => ask('GET', `/examples?dataset=${datasetId}`)],
    ['an example', async () => () => ask('GET', `/examples/${exampleId}`)],
    ['a dataset as JSONL', async () => () => download('jsonl')],
    ['a dataset as CSV', async () => () => download('csv')],
    [
      'examples with their runs',
      async () => () => ask('POST', `/datasets/${datasetId}/runs`, { session_ids: [experimentId] }),
    ],
    [
      'examples of a shared dataset',
      async () => {
        const { share_token } = (await api.ask(key, 'PUT', `/datasets/${datasetId}/share`)).body;
        return async () => (await api.server.inject({ url: `/public/${share_token}/examples` })).statusCode;
      },
    ],
    [
      'an attachment',
      async () => {
        const url = await readUrl();
        return async () => (await api.server.inject({ url })).statusCode;
      },
    ],
  ])('refuses a large response: %s', async (_name, prepare) => {
    const read = await prepare();
    for (let round = 0; round < 2; round++) {
      await takeMemory(async () => expect(await read()).toBe(503));
      expect(await read()).toBe(200);
    }
  });

  it('exports many runs of a queue, of which only a part is in memory', async () => {
    const runIds = Array.from({ length: 80 }, () => randomUUID());
    for (const id of runIds) {
      const run = { id, name: 'run', run_type: 'chain', inputs: { text: 'x'.repeat(300_000) }, session_id: projectId };
      expect(await ask('POST', '/runs', { ...run, start_time: new Date().toISOString() })).toBe(202);
    }
    await api.settled();
    const { id } = (await api.ask(key, 'POST', '/annotation-queues', { name: name() })).body as { id: string };
    const added = (await api.ask(key, 'POST', `/annotation-queues/${id}/runs`, runIds)).body as { id: string }[];
    for (const run of added)
      expect(await ask('POST', `/annotation-queues/status/${run.id}`, { status: 'completed' })).toBe(200);
    // Each batch of 20 runs needs 12 MB.
    await takeMemory(async () => {
      const answer = await api.server.inject({
        ...{ method: 'POST', url: `/annotation-queues/${id}/export`, payload: {} },
        headers: { 'x-api-key': key },
      });
      expect(answer.body.split('\r\n')).toHaveLength(82);
    }, 30_000_000);
  });

  async function takeMemory(work: () => Promise<void>, leftBytes = smallBytes): Promise<void> {
    const share = getBodyBudget(api.services.config).open(organizationId, () => undefined);
    try {
      share.take(api.services.config.maxCollectingBytes - leftBytes);
      await work();
    } finally {
      share.close();
    }
  }

  it('refuses a clone before it copies anything', async () => {
    const target = (await api.ask(key, 'POST', '/datasets', { name: name() })).body as { id: string };
    const body = { source_dataset_id: datasetId, target_dataset_id: target.id };
    const count = async () => (await api.ask(key, 'GET', `/datasets/${target.id}`)).body.example_count;
    await takeMemory(async () => expect(await ask('POST', '/datasets/clone', body)).toBe(503));
    expect(await count()).toBe(0);
    expect(await ask('POST', '/datasets/clone', body)).toBe(200);
    expect(await count()).toBe(1);
  });

  it('refuses large statistics of feedback', async () => {
    const { tenant_id: tenant } = (await api.ask(key, 'GET', `/sessions/${projectId}`)).body as { tenant_id: string };
    // Of each key, ten comments and a hundred labels are in the statistics: 120 kB.
    await api.services.clickhouse.command({
      name: 'test',
      sql: `INSERT INTO feedback (version, tenant_id, run_id, id, received_at, key, value, comment, source_type, user_id, created_at, modified_at)
        SELECT 1, {tenant:UUID}, {run:UUID}, generateUUIDv4(), now(), toString(number % 40), concat('"', toString(number), repeat('x', 980), '"'),
          concat('"', repeat('y', 1900), '"'), 'api', {run:UUID}, now(), now() FROM numbers(4000)`,
      params: { tenant, run: runId },
    });
    const read = () => ask('POST', '/runs/query', { session: [projectId], select: ['feedback_stats'] });
    await takeMemory(async () => expect(await read()).toBe(503));
    expect(await read()).toBe(200);
  });

  it('refuses a large example as JSON, whose texts are in memory twice', async () => {
    const create = () => ask('POST', '/examples', { dataset_id: datasetId, inputs: { text: text + text } });
    await takeMemory(async () => expect(await create()).toBe(503), 10_000_000);
    expect(await create()).toBe(200);
  });

  it('answers a request for few fields of large runs', () =>
    takeMemory(async () => {
      expect(await ask('POST', '/runs/query', { session: [projectId], select: ['name'] })).toBe(200);
    }));

  it('answers a write whose response is large, because the client would repeat it', () =>
    takeMemory(async () => {
      expect(await ask('PATCH', `/examples/${exampleId}`, { outputs: { n: 1 } })).toBe(200);
    }));

  it('refuses a change of large metadata before it reads them', async () => {
    const id = randomUUID();
    const example = { id, dataset_id: datasetId, inputs: {} };
    expect((await api.ask(key, 'POST', '/examples', example)).status).toBe(200);
    await api.database.execute(
      `UPDATE examples SET metadata = jsonb_build_object('text', $1::text)::text WHERE id = $2`,
      [text, id],
    );
    const change = () => ask('PUT', `/datasets/${datasetId}/splits`, { split_name: 'test', examples: [id] });
    await takeMemory(async () => expect(await change()).toBe(503));
    expect(await change()).toBe(200);
  });
});
