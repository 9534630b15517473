import { randomUUID } from 'node:crypto';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { loadConfig } from '../../../infra/config/load.ts';
import { startTracing, type Tracing } from '../../../infra/telemetry/tracing/start-tracing.ts';
import { forSuite } from '../../for-suite.ts';
import { type ReceivedSpan, startReceiver } from '../../infra/telemetry/tracing/received-spans.ts';
import { logger } from '../../silent-logger.ts';
import { addOrganization, startApi } from '../start-api.ts';

const api = forSuite(() => startApi());
const acme = forSuite(() => addOrganization(api.database, 'acme'));
const receiver = forSuite(startReceiver);
let tracing: Tracing | undefined;

afterEach(async () => {
  vi.unstubAllEnvs();
  await tracing?.stop();
  tracing = undefined;
  receiver.collector.requests.length = 0;
});

async function trace(environment: Record<string, string> = {}): Promise<void> {
  // The SDK reads the environment of the process.
  for (const [name, value] of Object.entries(environment)) vi.stubEnv(name, value);
  const { config } = loadConfig({ OTEL_EXPORTER_OTLP_ENDPOINT: receiver.collector.origin, ...environment });
  tracing = await startTracing({ config, role: 'all', version: '1.2.3', logger });
}

/** Returns the received spans after all pending spans are flushed. */
async function spans(): Promise<ReceivedSpan[]> {
  await api.settled();
  await tracing?.stop();
  tracing = undefined;
  return receiver.spans();
}

async function ask(path: string, body?: object, headers: Record<string, string> = {}) {
  return fetch(`${await api.listen()}${path}`, {
    method: body === undefined ? 'GET' : 'POST',
    headers: { 'x-api-key': acme.adminKey, 'content-type': 'application/json', ...headers },
    ...(body && { body: JSON.stringify(body) }),
  });
}

const run = () => ({ id: randomUUID(), name: 'traced', run_type: 'chain', inputs: {} });
const named = (all: readonly ReceivedSpan[], name: string) => all.filter((span) => span.name === name);
const only = (all: readonly ReceivedSpan[], name: string): ReceivedSpan => {
  expect(all.map((span) => span.name)).toContain(name);
  return named(all, name)[0] as ReceivedSpan;
};

it('traces a request across the event log in one trace that continues the trace of the sender', async () => {
  await trace({ OTEL_SERVICE_NAME: 'runlake-eu' });
  const traceId = '0af7651916cd43dd8448eb211c80319c';
  const answer = await ask('/runs', run(), { traceparent: `00-${traceId}-b7ad6b7169203331-01` });
  expect(answer.status).toBe(202);

  const all = await spans();
  const [request, send, process] = ['POST /api/v1/runs', 'send run-events', 'process run-events'].map((name) =>
    only(all, name),
  );
  expect(request).toMatchObject({
    traceId,
    parentSpanId: 'b7ad6b7169203331',
    kind: 2,
    status: 0,
    attributes: {
      'http.request.method': 'POST',
      'http.route': '/api/v1/runs',
      'http.response.status_code': 202,
      'runlake.operation': 'createRun',
      'runlake.workspace.id': acme.workspaceIds[0],
    },
    resource: { 'service.name': 'runlake-eu', 'service.version': '1.2.3', 'runlake.role': 'all' },
  });
  expect(send).toMatchObject({ traceId, parentSpanId: request?.spanId, kind: 4 });
  expect(send?.attributes).toMatchObject({
    'messaging.destination.name': 'run-events',
    'messaging.batch.message_count': 1,
  });
  expect(process).toMatchObject({ traceId, parentSpanId: send?.spanId, kind: 5 });
  expect(process?.links).toEqual([{ traceId, spanId: send?.spanId }]);
  expect(process?.attributes).toMatchObject({ 'runlake.table': 'run_events', 'messaging.batch.message_count': 1 });
});

it('keeps the trace of a request whose body the server parses as JSON', async () => {
  await trace();
  expect((await ask('/feedback', { run_id: randomUUID(), key: 'k', score: 1 })).status).toBeLessThan(500);
  const project = await ask('/sessions', { name: `traced ${randomUUID()}` });
  expect(project.status).toBe(200);
  const { id } = (await project.json()) as { id: string };
  const feedback = await ask('/feedback', { session_id: id, key: 'k', score: 1 });
  expect(feedback.status).toBe(200);
  const all = await spans();
  const send = only(all, 'send feedback-events');
  expect(all.filter((span) => span.spanId === send.parentSpanId).map((span) => span.name)).toEqual([
    'POST /api/v1/feedback',
  ]);
  expect(only(all, 'process feedback-events').traceId).toBe(send.traceId);
});

it('puts an insert of many requests into the trace of the first, with links to at most 32 others', async () => {
  await trace();
  const answers = await Promise.all(Array.from({ length: 120 }, () => ask('/runs', run())));
  expect(answers.map(({ status }) => status)).toEqual(Array(120).fill(202));
  const all = await spans();
  const [sends, inserts] = [named(all, 'send run-events'), named(all, 'process run-events')];
  expect(sends).toHaveLength(120);
  expect(new Set(sends.map(({ traceId }) => traceId)).size).toBe(120);
  expect(inserts.length).toBeLessThan(120);
  const known = new Set(sends.map(({ traceId, spanId }) => `${traceId} ${spanId}`));
  for (const insert of inserts) {
    const { 'messaging.batch.message_count': events } = insert.attributes;
    expect(insert.links).toHaveLength(Math.min(Number(events), 32));
    for (const { traceId, spanId } of insert.links) expect(known).toContain(`${traceId} ${spanId}`);
    expect(insert).toMatchObject({ traceId: insert.links[0]?.traceId, parentSpanId: insert.links[0]?.spanId });
  }
});

it('marks errors with their code, and keeps paths out of span names', async () => {
  await trace();
  const id = randomUUID();
  expect((await ask(`/runs/${id}`)).status).toBe(404);
  const all = await spans();
  const [read] = named(all, 'GET /api/v1/runs/:run_id');
  expect(read).toMatchObject({
    status: 0,
    attributes: { 'error.type': 'NOT_FOUND', 'http.response.status_code': 404 },
  });
  expect(JSON.stringify(all)).not.toContain(id);
});

describe('nothing is traced', () => {
  it.each([
    ['without an exporter', {}, { OTEL_EXPORTER_OTLP_ENDPOINT: '' }],
    ['if the sampler is off', {}, { OTEL_TRACES_SAMPLER: 'always_off' }],
    ['at a sampling ratio of 0', {}, { OTEL_TRACES_SAMPLER: 'traceidratio', OTEL_TRACES_SAMPLER_ARG: '0' }],
    ['if the sender is not sampled', { traceparent: `00-${'a'.repeat(32)}-${'b'.repeat(16)}-00` }, {}],
  ])('%s', async (_name, headers, environment) => {
    await trace(environment);
    expect((await ask('/runs', run(), headers)).status).toBe(202);
    expect(await spans()).toEqual([]);
  });

  it('for health, metrics and unknown routes', async () => {
    await trace();
    for (const path of ['/ok', '/ready', '/metrics', '/nowhere']) await ask(path);
    expect(await spans()).toEqual([]);
  });

  it('for OTLP ingestion: Runlake may send its own spans to itself, which would never end', async () => {
    await trace({
      OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: `${await api.listen()}/otel/v1/traces`,
      OTEL_EXPORTER_OTLP_HEADERS: `x-api-key=${encodeURIComponent(acme.adminKey)},Langsmith-Project=itself`,
    });
    expect((await ask('/runs', run())).status).toBe(202);
    await spans();
    await api.settled();
    const names = await api.services.clickhouse.query<{ name: string }>({
      name: 'test',
      sql: "SELECT coalesce(name, '') AS name FROM runs FINAL WHERE position(extra, 'runlake.operation') > 0 OR name LIKE '% run-events' ORDER BY name",
    });
    expect(names.map(({ name }) => name)).toEqual(['POST /api/v1/runs', 'process run-events', 'send run-events']);
  });
});

it.each([
  ['malformed', 'nonsense'],
  ['of an invalid version', `ff-${'a'.repeat(32)}-${'b'.repeat(16)}-01`],
  ['all zeros', `00-${'0'.repeat(32)}-${'b'.repeat(16)}-01`],
])('starts a new trace for a traceparent that is %s', async (_name, traceparent) => {
  await trace();
  expect((await ask('/sessions', undefined, { traceparent })).status).toBe(200);
  expect(only(await spans(), 'GET /api/v1/sessions').parentSpanId).toBe('');
});
