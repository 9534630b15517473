import { randomUUID } from 'node:crypto';
import type { Client } from 'langsmith';
import { beforeAll, expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { openClient } from '../../open-client.ts';
import { startRunsApi } from '../runs/runs.fixture.ts';

const count = 10_000;

const runs = forSuite(() => startRunsApi());
let client: Client;
let runId: string;
beforeAll(async () => {
  runId = runs.trace[0].runId;
  const tenantId = runs.ours.workspaceIds[0];
  await runs.api.services.clickhouse.command({
    name: 'test',
    sql: `INSERT INTO feedback (version, tenant_id, run_id, id, received_at, key, score, comment, source_type, user_id, created_at, modified_at)
          SELECT number, '${tenantId}', '${runId}', generateUUIDv4(), now64(6), if(number % 2 = 0, 'even', 'odd'), toString(number),
            concat('"comment ', toString(number), '"'), 'api', '${randomUUID()}',
            toDateTime64('2026-01-01 00:00:00', 6, 'UTC') + INTERVAL number SECOND, now64(6)
          FROM numbers(${count})`,
  });
  client = await openClient(runs.api, runs.ours.workspaceKeys[0]);
});

it(`${count} feedback of a run are counted in the run`, async () => {
  const { body } = await runs.ask({ url: '/runs/query', body: { id: [runId], select: ['id', 'feedback_stats'] } });
  const stats = body.runs[0]?.feedback_stats as Record<string, { n: number; avg: number; comments: string[] }>;
  expect(stats).toMatchObject({ even: { n: count / 2, avg: count / 2 - 1 }, odd: { n: count / 2, avg: count / 2 } });
  // The statistics stay small.
  expect(stats.even?.comments.length).toBeLessThanOrEqual(10);
});

it('are listed page by page by the stock SDK, each once, newest first', { timeout: 120_000 }, async () => {
  const scores: number[] = [];
  for await (const { score } of client.listFeedback({ runIds: [runId] })) scores.push(Number(score));
  expect(scores).toEqual(Array.from({ length: count }, (_, index) => count - 1 - index));
});

it('select the run in a filter', async () => {
  const find = async (score: number) => {
    const filter = `and(eq(feedback_key, "even"), eq(feedback_score, ${score}))`;
    const { body } = await runs.ask({ url: '/runs/query', body: { session: [runs.projectId], filter } });
    return body.runs.map(({ id }) => id);
  };
  expect([await find(count - 2), await find(1)]).toEqual([[runId], []]);
});
