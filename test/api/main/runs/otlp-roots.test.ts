import { randomBytes, randomUUID } from 'node:crypto';
import { Client } from 'langsmith';
import { beforeAll, describe, expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { request, span } from '../../../pipelines/ingest/otlp/requests.ts';
import { addOrganization, startApi } from '../../start-api.ts';
import { multipart, Wire } from '../ingest/wire.ts';

const api = forSuite(() => startApi({ config: { patchWaitMs: 0 } }));
let wire: Wire;
let client: Client;
let strangerKey: string;

beforeAll(async () => {
  const acme = await addOrganization(api.database, 'acme');
  strangerKey = acme.workspaceKeys[1];
  await api.listen();
  wire = new Wire(api.server, acme.workspaceKeys[0]);
  client = new Client({ apiUrl: wire.url, apiKey: wire.key, autoBatchTracing: false });
});

const toUuid = (hex: string) => hex.padStart(32, '0').replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');

/** Sends a trace of a root and a child as OpenTelemetry spans, and returns its ids. */
async function sendTrace() {
  const [traceHex, rootHex, childHex] = [16, 8, 8].map((bytes) => randomBytes(bytes).toString('hex')) as [
    string,
    string,
    string,
  ];
  const start = BigInt(Date.now() - 60_000) * 1_000_000n;
  const times = { startTimeUnixNano: String(start), endTimeUnixNano: String(start + 1_000_000n) };
  const spans = [
    span({ traceId: traceHex, spanId: rootHex, name: 'root', ...times }),
    span({ traceId: traceHex, spanId: childHex, parentSpanId: rootHex, name: 'child', ...times }),
  ];
  const sent = await wire.send('POST', '/otel/v1/traces', request(spans), { 'content-type': 'application/json' });
  expect(sent.status).toBe(200);
  return { traceId: toUuid(traceHex), rootId: toUuid(rootHex), childId: toUuid(childHex) };
}

const read = async (path: string) => JSON.parse((await wire.send('GET', path)).text);

it('the root of a shared OpenTelemetry trace is public', async () => {
  const { rootId } = await sendTrace();
  const token = (await client.shareRun(rootId)).split('/').at(-2);
  const response = await fetch(`${wire.url}/public/${token}/run`);
  expect([response.status, await response.json()]).toEqual([
    200,
    expect.objectContaining({ id: rootId, name: 'root' }),
  ]);
});

describe('feedback on an OpenTelemetry trace', () => {
  const listFeedback = async (runId: string) => read(`/feedback?run=${runId}`);

  it('refers to its root run, as sent by the Python SDK', async () => {
    const { traceId, rootId } = await sendTrace();
    const feedback = { id: randomUUID(), run_id: traceId, trace_id: traceId, key: 'in parts', score: 1 };
    const sent = await wire.multipart(multipart([[`feedback.${feedback.id}`, JSON.stringify(feedback)]]));
    expect(sent.status).toBe(202);
    const only = await wire.json('POST', '/feedback', { trace_id: traceId, key: 'alone', score: 0 });
    expect(JSON.parse(only.text)).toMatchObject({ run_id: rootId, trace_id: traceId, is_root: true });
    expect(await listFeedback(rootId)).toMatchObject([{ key: 'alone' }, { key: 'in parts', is_root: true }]);
    const run = await client.readRun(rootId);
    expect(run.feedback_stats).toMatchObject({ 'in parts': { n: 1, avg: 1 }, alone: { n: 1, avg: 0 } });
  });

  it('is_root is true for the root only', async () => {
    const { rootId, childId } = await sendTrace();
    for (const runId of [rootId, childId]) await client.createFeedback(runId, 'k', { score: 1 });
    expect(await listFeedback(rootId)).toMatchObject([{ is_root: true }]);
    expect(await listFeedback(childId)).toMatchObject([{ is_root: false }]);
  });

  it('does not find roots of other workspaces, and is accepted before the trace', async () => {
    const { traceId } = await sendTrace();
    const strange = new Wire(api.server, strangerKey);
    const sent = await strange.json('POST', '/feedback', { trace_id: traceId, key: 'k', score: 1 });
    expect(JSON.parse(sent.text)).toMatchObject({ run_id: traceId });
    const runId = randomUUID();
    const early = await wire.json('POST', '/feedback', { trace_id: runId, key: 'k', score: 1 });
    expect(JSON.parse(early.text)).toMatchObject({ run_id: runId, trace_id: runId, is_root: true });
  });
});

it('a root with a start far in the future is rejected, and its child is not', async () => {
  const [traceId, rootId, childId] = [16, 8, 8].map((bytes) => randomBytes(bytes).toString('hex')) as [
    string,
    string,
    string,
  ];
  const at = (ms: number) => {
    const nanos = String(BigInt(ms) * 1_000_000n);
    return { startTimeUnixNano: nanos, endTimeUnixNano: nanos };
  };
  const root = span({ traceId, spanId: rootId, ...at(Date.now() + 48 * 3_600_000) });
  const child = span({ traceId, spanId: childId, parentSpanId: rootId, name: 'child', ...at(Date.now()) });
  const sent = await wire.send('POST', '/otel/v1/traces', request([root, child]), {
    'content-type': 'application/json',
  });
  expect([sent.status, JSON.parse(sent.text)]).toEqual([
    200,
    { partialSuccess: expect.objectContaining({ rejectedSpans: '1' }) },
  ]);
  expect(await client.readRun(toUuid(childId))).toMatchObject({ name: 'child', trace_id: toUuid(traceId) });
});

it.each([1, true])('runs are queried with is_root %s', async (is_root) => {
  const { traceId, rootId, childId } = await sendTrace();
  const answer = await wire.json('POST', '/runs/query', { is_root, trace: traceId });
  expect(JSON.parse(answer.text).runs).toMatchObject([{ id: rootId }]);
  const others = await wire.json('POST', '/runs/query', { is_root: 0, trace: traceId });
  expect(JSON.parse(others.text).runs).toMatchObject([{ id: childId }]);
});
