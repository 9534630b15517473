import { randomUUID } from 'node:crypto';
import { Client } from 'langsmith';
import { expect, test, vi } from 'vitest';
import { until } from '../infra/until.ts';
import { childOf, deadlineMs, dottedOrder, type Instance, rootRun, shareInstance } from './instance.ts';

vi.setConfig({ testTimeout: 300_000, hookTimeout: 300_000 });

let instance: Instance;
shareInstance((opened) => {
  instance = opened;
});

test.each(['clickhouse', 'postgres'] as const)(
  'kill -9 of %s under load: clients get 503 with Retry-After, and no run is lost or duplicated',
  async (engine) => {
    const since = await instance.since();
    const { url, apiKey } = instance.runlake;
    const client = new Client({ apiUrl: url, apiKey });
    const runs = 150;
    const ids = Array.from({ length: runs }, () => randomUUID());
    const answers: Promise<{ id: string; status: number; retryAfter: string | null }>[] = [];
    let killed = 0;
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
      if (index === 50) {
        killed = instance.enginePid(engine);
        process.kill(killed, 'SIGKILL');
      }
      // Requests without retries, to see their responses.
      if (index % 10 === 0) answers.push(probe());
    }
    await client.awaitPendingTraceBatches();
    await until('requests to be accepted again', async () => (await probe()).status === 202, deadlineMs);
    expect(instance.enginePid(engine)).not.toBe(killed);

    const probed = await Promise.all(answers);
    for (const { status, retryAfter } of probed) {
      expect([202, 503]).toContain(status);
      if (status === 503) expect(Number(retryAfter)).toBeGreaterThan(0);
    }
    const stored = await since.storedRuns();
    expect(ids.filter((id) => !stored.has(id))).toEqual([]);
    expect(probed.filter(({ id, status }) => status === 202 && !stored.has(id))).toEqual([]);
    expect(await since.countedTraces()).toBe(stored.size);
    expect(instance.runlake.output()).not.toMatch(/unhandled|uncaught/i);
  },
);

test('SIGTERM during an insert: the insert completes, other requests get 503 with Retry-After, and the exit code is 0', async () => {
  const since = await instance.since();
  const before = rootRun();
  expect((await instance.send('POST', '/runs/batch', { post: [before] })).status).toBe(202);
  // Part of a stored trace, so that the sink does not query ClickHouse before the insert.
  const release = instance.stallClickhouse();
  const run = childOf(before);
  const inFlight = instance.send('POST', '/runs/batch', { post: [run] });
  await until('the insert to begin', async () => (await instance.rowsOf('in_flight_inserts')) === 1, deadlineMs);
  inFlight.catch(() => undefined);
  const stopped = instance.runlake.stop();
  const refusal = await untilRefused();
  expect(refusal).toMatchObject({ status: 503 });
  expect(Number(refusal.headers.get('retry-after'))).toBeGreaterThan(0);
  release();
  expect((await inFlight).status).toBe(202);
  expect(await stopped, instance.runlake.output()).toBe(0);

  await instance.restart();
  expect(await since.storedRuns()).toEqual(new Set([before.id, run.id]));
  expect(await instance.rowsOf('in_flight_inserts')).toBe(0);
  expect(await since.countedTraces()).toBe(1);
});

/** Returns the first refusal of a request that does not need ClickHouse. */
async function untilRefused(): Promise<Response> {
  const end = performance.now() + deadlineMs;
  while (performance.now() < end) {
    const answer = await fetch(`${instance.runlake.url}/workspaces`, {
      headers: { 'x-api-key': instance.runlake.apiKey },
    });
    await answer.arrayBuffer();
    if (!answer.ok) return answer;
  }
  throw new Error('no request was refused');
}

async function probe(): Promise<{ id: string; status: number; retryAfter: string | null }> {
  const run = rootRun();
  const answer = await instance.send('POST', '/runs', run);
  await answer.arrayBuffer();
  return { id: run.id, status: answer.status, retryAfter: answer.headers.get('retry-after') };
}
