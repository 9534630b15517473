/** Adding runs to an annotation queue keeps their traces until they are reviewed. */
import { randomBytes } from 'node:crypto';
import { expect, test } from 'vitest';
import { forSuite } from '../../for-suite.ts';
import { request, span } from '../ingest/otlp/requests.ts';
import { openRetention, type SentTrace } from './retention-under-test.ts';

const under = forSuite(() => openRetention());

type BuildRequest = (queue: string, trace: SentTrace, keeps: boolean) => [url: string, payload: object];

const buildUrl = (path: string, keeps: boolean) => `/annotation-queues/${path}?extend_trace_retention=${keeps}`;
const requests: readonly [what: string, build: BuildRequest][] = [
  [
    'items',
    (queue, { childId }, keeps) => [
      `/v1/platform${buildUrl(`${queue}/items`, keeps)}`,
      { items: [{ item_type: 'RUN', run_id: childId }] },
    ],
  ],
  ['runs', (queue, { childId }, keeps) => [buildUrl(`${queue}/runs`, keeps), [childId]]],
  [
    'runs by their keys',
    (queue, { childId, projectId }, keeps) => [
      buildUrl(`${queue}/runs/by-key`, keeps),
      [{ run_id: childId, session_id: projectId, start_time: '2026-01-01T00:00:00Z' }],
    ],
  ],
  [
    'the runs of projects',
    (queue, { projectId }, keeps) => [
      '/annotation-queues/populate',
      { queue_id: queue, session_ids: [projectId], extend_trace_retention: keeps },
    ],
  ],
];

test.each(requests)('a trace is kept when %s are added to a queue, if the request asks for it', async (_, build) => {
  const { id: queue } = (await under.ask('POST', '/annotation-queues', { name: 'review' })).body as { id: string };
  const trace = await under.sendTrace(await under.addProject('shortlived'), 10);
  for (const [keeps, tier] of [
    [false, 'shortlived'],
    [true, 'longlived'],
  ] as const) {
    const [url, payload] = build(queue, trace, keeps);
    expect((await under.ask('POST', url, payload)).status).toBe(200);
    await under.change();
    expect((await under.ask('GET', `/runs/${trace.traceId}`)).body).toMatchObject({ trace_tier: tier });
  }
});

test('an OpenTelemetry trace, whose root run does not have the id of the trace, is kept', async () => {
  const projectId = await under.addProject('shortlived');
  const { name } = (await under.ask('GET', `/sessions/${projectId}`)).body as { name: string };
  const [traceHex, rootHex] = [16, 8].map((bytes) => randomBytes(bytes).toString('hex')) as [string, string];
  const start = String(BigInt(Date.now() - 60_000) * 1_000_000n);
  const times = { startTimeUnixNano: start, endTimeUnixNano: start };
  const sent = await under.api.server.inject({
    method: 'POST',
    url: '/otel/v1/traces',
    headers: { 'x-api-key': under.key, 'content-type': 'application/json', 'langsmith-project': name },
    payload: request([span({ traceId: traceHex, spanId: rootHex, name: 'root', ...times })]),
  });
  expect(sent.statusCode).toBe(200);
  await under.api.settled();
  const { id: queue } = (await under.ask('POST', '/annotation-queues', { name: 'review' })).body as { id: string };
  const payload = { queue_id: queue, session_ids: [projectId], extend_trace_retention: true };
  expect((await under.ask('POST', '/annotation-queues/populate', payload)).status).toBe(200);
  await under.change();
  const { body } = await under.ask('POST', '/runs/query', { session: [projectId] });
  expect(body.runs).toMatchObject([{ name: 'root', trace_tier: 'longlived' }]);
});

test('no trace is kept if the queue is full', async () => {
  const { id: queue } = (await under.ask('POST', '/annotation-queues', { name: 'full' })).body as { id: string };
  await under.api.database.execute(
    `INSERT INTO annotation_queue_runs (id, queue_id, run_id)
     SELECT gen_random_uuid(), $1, gen_random_uuid() FROM generate_series(1, 10000)`,
    [queue],
  );
  const { traceId } = await under.sendTrace(await under.addProject('shortlived'), 10);
  const added = await under.ask('POST', `/annotation-queues/${queue}/runs?extend_trace_retention=true`, [traceId]);
  expect(added.status).toBe(422);
  await under.change();
  expect((await under.ask('GET', `/runs/${traceId}`)).body).toMatchObject({ trace_tier: 'shortlived' });
});
