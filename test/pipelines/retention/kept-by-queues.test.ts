/** Adding runs to an annotation queue keeps their traces until they are reviewed. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openRetention, type RetentionUnderTest, type SentTrace } from './retention-under-test.ts';

let under: RetentionUnderTest;
beforeAll(async () => {
  under = await openRetention();
});
afterAll(() => under?.api.close());

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
