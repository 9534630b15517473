import { randomUUID } from 'node:crypto';
import { Client, RunTree } from 'langsmith-0-12';
import { beforeEach, describe, expect, it, test } from 'vitest';
import { request, span } from '../../../pipelines/ingest/otlp/requests.ts';
import { accepted, buildPostParts, multipart, rootRun, shareWire, type Wire } from './wire.ts';

/** A new agent of each test. */
let agent: string;

const { own, wire } = shareWire();
beforeEach(() => {
  agent = `agent-${randomUUID()}`;
});

const toLrn = (environment = 'production') => `lrn:agents/${agent}/environments/${environment}`;

async function read(path: string) {
  const { status, text } = await wire.send('GET', path);
  expect([status, text]).toEqual([200, expect.any(String)]);
  return JSON.parse(text);
}

const readProjectOfRun = async (id: string) => read(`/sessions/${(await read(`/runs/${id}`)).session_id}`);

async function resolve(query: Record<string, string>, key = wire.key) {
  const { status, text } = await wire.send('GET', `/sessions/resolutions?${new URLSearchParams(query)}`, undefined, {
    'x-api-key': key,
  });
  return status === 200 ? JSON.parse(text).session_id : status;
}
const resolveAgent = (environment = 'PRODUCTION', key?: string) =>
  resolve({ kind: 'AGENT', id: agent, environment }, key);

describe('a run with the address of an agent', () => {
  it.each<[string, (run: ReturnType<typeof rootRun>) => ReturnType<Wire['json']>]>([
    ['POST /runs', (run) => wire.json('POST', '/runs', run)],
    ['POST /runs/batch', (run) => wire.json('POST', '/runs/batch', { post: [run] })],
    ['POST /runs/multipart', (run) => wire.multipart(multipart(buildPostParts(run)))],
  ])('is stored in the project of the agent: %s', async (_route, send) => {
    const run = rootRun({ address: toLrn('Staging') });
    await accepted(send(run));
    const project = await readProjectOfRun(run.id);
    expect(project.name).toBe(`${agent}/staging`);
    expect(await resolveAgent('STAGING')).toBe(project.id);
    expect(await resolveAgent('PRODUCTION')).toBe(404);
    expect(await resolveAgent('STAGING', own.workspaceKeys[1])).toBe(404);
  });

  it('follows the project when it is renamed', async () => {
    const [run, next] = [rootRun({ address: toLrn() }), rootRun({ address: toLrn() })];
    await accepted(wire.json('POST', '/runs', run));
    const { id } = await readProjectOfRun(run.id);
    expect((await wire.json('PATCH', `/sessions/${id}`, { name: `renamed ${agent}` })).status).toBe(200);
    await accepted(wire.json('POST', '/runs', next));
    expect(await readProjectOfRun(next.id)).toMatchObject({ id, name: `renamed ${agent}` });
    expect(await resolveAgent()).toBe(id);
    expect((await wire.send('DELETE', `/sessions/${id}`)).status).toBe(200);
    expect(await resolveAgent()).toBe(404);
  });

  it('is stored in the project that it names', async () => {
    const run = rootRun({ address: toLrn(), session_name: agent });
    await accepted(wire.json('POST', '/runs', run));
    expect((await readProjectOfRun(run.id)).name).toBe(agent);
  });

  it('can be a patch', async () => {
    const run = rootRun({ address: toLrn() });
    const { id, trace_id, dotted_order, address } = run;
    const patch = { id, trace_id, dotted_order, address, outputs: { done: true } };
    await accepted(wire.json('POST', '/runs/batch', { post: [run], patch: [patch] }));
    expect(await read(`/runs/${id}`)).toMatchObject({ outputs: { done: true } });
    expect((await readProjectOfRun(id)).name).toBe(`${agent}/production`);
  });

  it.each([
    ['lrn:agents/Support/environments/production'],
    ['lrn:agents/support-/environments/production'],
    ['lrn:agents/support/environments/test'],
    ['lrn:agents/support/environments/production/'],
    ['support/production'],
    [{ kind: 'AGENT', id: 'support', environment: 'PRODUCTION' }],
  ])('is rejected if the address is %j, without the other runs', async (address) => {
    const [run, other] = [rootRun({ address }), rootRun({ address: toLrn() })];
    const { status, text } = await wire.json('POST', '/runs/batch', { post: [run, other] });
    expect([status, JSON.parse(text).rejected]).toEqual([
      202,
      [{ run: run.id, code: 'INVALID_RUN', reason: expect.stringContaining('address') }],
    ]);
    expect((await readProjectOfRun(other.id)).name).toBe(`${agent}/production`);
  });
});

describe('OTLP headers with an agent', () => {
  const id = () => randomUUID().replaceAll('-', '');
  const send = (headers: Record<string, string>, traceId = id()) => {
    const spanId = traceId.slice(16);
    const startTimeUnixNano = String(BigInt(Date.now() - 60_000) * 1_000_000n);
    const body = request([span({ traceId, spanId, startTimeUnixNano, endTimeUnixNano: startTimeUnixNano })]);
    return wire.send('POST', '/otel/v1/traces', body, { 'content-type': 'application/json', ...headers });
  };

  it('name its project', async () => {
    const traceId = id();
    const sent = await send({ 'langsmith-agent-id': agent, 'langsmith-agent-environment': 'local' }, traceId);
    expect([sent.status, sent.text]).toEqual([200, expect.any(String)]);
    const project = await resolveAgent('local');
    const { text } = await wire.json('POST', '/runs/query', { session: [project] });
    expect(JSON.parse(text).runs).toMatchObject([{ trace_id: expect.stringContaining(traceId.slice(0, 8)) }]);
  });

  it.each<Record<string, string>>([
    { 'langsmith-agent-id': 'support' },
    { 'langsmith-agent-environment': 'local' },
    { 'langsmith-agent-id': 'Support', 'langsmith-agent-environment': 'local' },
    { 'langsmith-agent-id': 'support', 'langsmith-agent-environment': 'test' },
    { 'langsmith-agent-id': 'support', 'langsmith-agent-environment': 'local', 'langsmith-project': 'other' },
  ])('are refused: %j', async (headers) => {
    expect((await send(headers)).status).toBe(400);
  });
});

describe('feedback with the address of an agent', () => {
  const feedback = (more: object) => ({ id: randomUUID(), key: 'k', score: 1, address: toLrn(), ...more });

  it('belongs to its project', async () => {
    const run = rootRun({ address: toLrn() });
    await accepted(wire.json('POST', '/runs', run));
    const { id: project } = await readProjectOfRun(run.id);
    const ofRun = await wire.json('POST', '/feedback', feedback({ run_id: run.id }));
    expect(JSON.parse(ofRun.text)).toMatchObject({ run_id: run.id, session_id: project });
    const ofProject = await wire.json('POST', '/feedback', feedback({}));
    expect(JSON.parse(ofProject.text)).toMatchObject({ run_id: null, session_id: project });
    const inParts = feedback({ run_id: run.id });
    await accepted(wire.multipart(multipart([[`feedback.${inParts.id}`, JSON.stringify(inParts)]])));
    expect(await read(`/feedback/${inParts.id}`)).toMatchObject({ session_id: project });
    expect((await read(`/feedback?session=${project}`)).length).toBe(3);
  });

  it('belongs to the project of its run if both arrive in one request', async () => {
    const run = rootRun({ address: toLrn() });
    const rating = feedback({ run_id: run.id });
    await accepted(
      wire.multipart(multipart([...buildPostParts(run), [`feedback.${rating.id}`, JSON.stringify(rating)]])),
    );
    expect((await read(`/feedback/${rating.id}`)).session_id).toBe((await readProjectOfRun(run.id)).id);
  });

  it.each([
    ['INVALID_FEEDBACK', { address: 'support' }],
    ['INVALID_FEEDBACK', { address: {} }],
    ['PROJECT_UNKNOWN', {}],
  ])('is refused with %s: %j', async (code, members) => {
    const { status, text } = await wire.json('POST', '/feedback', feedback(members));
    expect([status, JSON.parse(text).code]).toEqual([422, code]);
    const rating = feedback(members);
    const sent = await wire.multipart(multipart([[`feedback.${rating.id}`, JSON.stringify(rating)]]));
    expect(JSON.parse(sent.text)).toMatchObject({ code });
  });
});

describe('GET /sessions/resolutions', () => {
  it('finds an experiment and the project of the evaluators', async () => {
    const dataset = JSON.parse((await wire.json('POST', '/datasets', { name: agent })).text).id;
    const make = async (body: object) => JSON.parse((await wire.json('POST', '/sessions', body)).text).id;
    const experiment = await make({ name: `experiment ${agent}`, reference_dataset_id: dataset });
    expect(await resolve({ kind: 'EXPERIMENT', id: experiment.toUpperCase() })).toBe(experiment);
    expect(await resolve({ kind: 'EXPERIMENT', id: experiment }, own.workspaceKeys[1])).toBe(404);
    expect(await resolve({ kind: 'EXPERIMENT', id: await make({ name: agent }) })).toBe(404);
    expect(await resolve({ kind: 'EVALUATOR' })).toBe(404);
    const evaluators = await make({ name: 'evaluators' });
    expect(await resolve({ kind: 'evaluator' })).toBe(evaluators);
  });

  it.each([
    [{}],
    [{ kind: 'PROJECT' }],
    [{ kind: 'AGENT', id: 'support' }],
    [{ kind: 'AGENT', environment: 'LOCAL' }],
    [{ kind: 'AGENT', id: 'support', environment: 'TEST' }],
    [{ kind: 'EXPERIMENT' }],
    [{ kind: 'EXPERIMENT', id: 'support' }],
  ])('refuses %j', async (query) => {
    expect([400, 422]).toContain(await resolve(query as Record<string, string>));
  });
});

test('the stock JavaScript client sends runs and feedback of an agent, and finds its project', async () => {
  const client = new Client({ apiUrl: wire.url, apiKey: wire.key });
  const address = { kind: 'AGENT', id: agent, environment: 'DEVELOPMENT' } as const;
  const tree = new RunTree({ name: 'root', client, address });
  await tree.postRun();
  const child = tree.createChild({ name: 'child' });
  await child.postRun();
  await child.end({ done: true });
  await child.patchRun();
  await client.awaitPendingTraceBatches();
  const { session_id: project } = await client.sessions.resolve(address);
  const rating = await client.createFeedback({ runId: tree.id, key: 'k', score: 1, address });
  await client.awaitPendingTraceBatches();
  expect(await client.readFeedback(rating.id)).toMatchObject({ session_id: project });
  for (const { id } of [tree, child]) expect((await readProjectOfRun(id)).id).toBe(project);
  expect((await readProjectOfRun(child.id)).name).toBe(`${agent}/development`);
});
