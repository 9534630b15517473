import { expect, test, vi } from 'vitest';
import { until } from '../infra/until.ts';
import { checkKillUnderLoad } from './engine-killed-under-load.ts';
import { deadlineMs, makeChildRun, rootRun, shareInstance } from './instance.ts';

vi.setConfig({ testTimeout: 300_000, hookTimeout: 300_000 });

const instance = shareInstance();

test.each(['clickhouse', 'postgres'] as const)(
  'kill -9 of %s under load: clients get 503 with Retry-After, and no run is lost or duplicated',
  async (engine) => {
    const killed = instance.enginePid(engine);
    await checkKillUnderLoad(instance, () => process.kill(killed, 'SIGKILL'));
    expect(instance.enginePid(engine)).not.toBe(killed);
  },
);

test('SIGTERM during an insert: the request completes, other requests get 503 with Retry-After, and the exit code is 0', async () => {
  const since = await instance.since();
  const before = rootRun();
  expect((await instance.send('POST', '/runs/batch', { post: [before] })).status).toBe(202);
  const release = await instance.stallClickhouse();
  const run = makeChildRun(before);
  const inFlight = instance.send('POST', '/runs/batch', { post: [run] });
  await until('the event to be pending', () => instance.hasPendingEvents(), deadlineMs);
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
