import { randomUUID } from 'node:crypto';
import { Client } from 'langsmith';
import { expect } from 'vitest';
import { until } from '../infra/until.ts';
import { deadlineMs, dottedOrder, type Instance, rootRun } from './instance.ts';

/**
 * Sends runs with the stock client, which repeats refused requests, and single requests without retries; calls `kill`
 * in the middle. Checks that no accepted run is lost, duplicated or counted twice, and that refused requests get 503
 * with Retry-After.
 */
export async function checkKillUnderLoad(instance: Instance, kill: () => void): Promise<void> {
  const since = await instance.since();
  const { url, apiKey } = instance.runlake;
  const client = new Client({ apiUrl: url, apiKey });
  const ids = Array.from({ length: 150 }, () => randomUUID());
  const answers: ReturnType<typeof sendRun>[] = [];
  for (const [index, id] of ids.entries()) {
    await client.createRun({
      id,
      name: 'run',
      run_type: 'chain',
      inputs: { id },
      start_time: Date.now(),
      trace_id: id,
      dotted_order: dottedOrder(id),
    });
    if (index === 50) kill();
    if (index % 10 === 0) answers.push(sendRun(instance));
  }
  await client.awaitPendingTraceBatches();
  await until('requests to be accepted again', async () => (await sendRun(instance)).status === 202, deadlineMs);

  const sent = await Promise.all(answers);
  for (const { status, retryAfter } of sent) {
    expect([202, 503]).toContain(status);
    if (status === 503) expect(Number(retryAfter)).toBeGreaterThan(0);
  }
  const stored = await since.storedRuns();
  expect(ids.filter((id) => !stored.has(id))).toEqual([]);
  expect(sent.filter(({ id, status }) => status === 202 && !stored.has(id))).toEqual([]);
  expect(await since.countedTraces()).toBe(stored.size);
  expect(instance.runlake.output()).not.toMatch(/unhandled|uncaught/i);
}

async function sendRun(instance: Instance): Promise<{ id: string; status: number; retryAfter: string | null }> {
  const run = rootRun();
  const answer = await instance.send('POST', '/runs', run);
  await answer.arrayBuffer();
  return { id: run.id, status: answer.status, retryAfter: answer.headers.get('retry-after') };
}
