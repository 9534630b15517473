/** Queues in a Redis that is killed while workers use it. */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { Jobs } from '../../../infra/jobs/jobs.ts';
import { openJobs } from '../../../infra/jobs/open-jobs.ts';
import { type DedicatedServer, startDedicatedServer } from '../../crash/own-server.ts';
import { stackPart } from '../../engines/stack.ts';
import { type FreshStores, freshStores } from '../../engines/stores.ts';
import { type RunlakeProcess, startRunlake } from '../../runlake-process.ts';
import { logger } from '../../silent-logger.ts';
import { deferred } from '../deferred.ts';
import { askPostgres } from '../embedded/processes.ts';
import { until } from '../until.ts';
import { testCatalogue } from './test-catalogue.ts';

vi.setConfig({ testTimeout: 240_000, hookTimeout: 120_000 });

const timeoutMs = 60_000;

describe.runIf(stackPart('redis'))('a Redis that is killed and restarted', () => {
  let stores: FreshStores;
  let redis: DedicatedServer;
  let jobs: Jobs<typeof testCatalogue>;
  beforeEach(async () => {
    [stores, redis] = await Promise.all([freshStores(), startDedicatedServer('redis')]);
    const { databaseUrl } = stores;
    jobs = await openJobs({ databaseUrl, config: { redisUrl: redis.values.url }, logger, catalogue: testCatalogue });
  });
  afterEach(async () => {
    await redis?.start();
    await jobs?.close();
    await redis?.remove();
    await stores?.close();
  });

  const forget = () => rmSync(join(redis.folder, 'appendonlydir'), { recursive: true });

  test('with its data: the running job ends, and waiting and new jobs run', async () => {
    const seen = new Set<number>();
    let begun = false;
    const { promise: held, resolve: release } = deferred();
    jobs.work('single', async ({ n }) => {
      if (n === 0) {
        begun = true;
        await held;
      }
      seen.add(n);
    });
    for (let n = 0; n < 20; n++) await jobs.enqueue('single', { n });
    await until('the first job to run', () => begun);
    await redis.kill();
    await expect(jobs.enqueue('single', { n: 98 })).rejects.toMatchObject({ code: 'JOBS_UNAVAILABLE' });
    // This opens the queue for the first time.
    await expect(jobs.enqueue('quick', { n: 98 })).rejects.toMatchObject({ code: 'JOBS_UNAVAILABLE' });
    await expect(jobs.check()).rejects.toMatchObject({ code: 'JOBS_UNAVAILABLE' });
    release();
    await redis.start();
    const back = () =>
      jobs.enqueue('single', { n: 99 }, { jobId: 'after' }).then(
        () => true,
        () => false,
      );
    await until('queues to accept jobs again', back, timeoutMs);
    await until('all jobs to run', () => Array.from({ length: 20 }, (_, n) => n).every((n) => seen.has(n)), timeoutMs);
    await until('the new job to run', () => seen.has(99), timeoutMs);
  });

  test('without its data: scheduled jobs continue', async () => {
    let runs = 0;
    jobs.work('quick', async () => {
      runs += 1;
    });
    await jobs.every('quick', 200, { n: 1 });
    await until('the job to run', () => runs > 1, timeoutMs);
    await redis.kill();
    forget();
    await redis.start();
    const before = runs;
    await until('the job to run again', () => runs > before + 2, timeoutMs);
  });

  test('without its data: a project whose deletion could not be queued loses its runs', async () => {
    let runlake: RunlakeProcess | undefined;
    try {
      runlake = await startRunlake({ environment: { RUNLAKE_REDIS_URL: redis.values.url ?? '' } });
      const headers = { 'x-api-key': runlake.apiKey, 'content-type': 'application/json' };
      const ask = (method: string, path: string, body?: object) =>
        fetch(`${runlake?.url}${path}`, { method, headers, ...(body && { body: JSON.stringify(body) }) });
      const { id } = (await (await ask('POST', '/sessions', { name: 'gone soon' })).json()) as { id: string };
      await redis.kill();
      // The queue was never opened before; the response must come while Redis is down.
      expect((await ask('DELETE', `/sessions/${id}`)).status).toBe(503);
      forget();
      await redis.start();
      const { databaseUrl } = runlake.stores();
      const isPurged = async () =>
        (await askPostgres(databaseUrl, `SELECT 1 FROM projects WHERE id = '${id}' AND purged_at IS NOT NULL`))
          .length === 1;
      await until('the deletion to be done', isPurged, timeoutMs);
    } finally {
      await redis.start();
      await runlake?.remove();
    }
  });
});
