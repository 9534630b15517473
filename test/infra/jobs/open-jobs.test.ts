import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import { Queue } from 'bullmq';
import { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import type { Jobs } from '../../../infra/jobs/jobs.ts';
import { openJobs } from '../../../infra/jobs/open-jobs.ts';
import { childProcessOptions } from '../../engines/child-of-suite.ts';
import { freshStores } from '../../engines/stores.ts';
import { forSuite } from '../../for-suite.ts';
import { logger } from '../../silent-logger.ts';
import { deferred } from '../deferred.ts';
import { listenOnLoopback } from '../listen-on-loopback.ts';
import { until } from '../until.ts';
import { testCatalogue } from './test-catalogue.ts';

/** Address of the Redis with the queues, if the suite runs on the native stack. */
let redisUrl: string | undefined;
const stores = forSuite(() => freshStores({ migrated: false }));
let redis: Redis | undefined;
beforeAll(async () => {
  redisUrl = stores.environment.RUNLAKE_REDIS_URL;
  redis = redisUrl === undefined ? undefined : new Redis(redisUrl, { maxRetriesPerRequest: null });
});
afterAll(async () => {
  redis?.disconnect();
});

const opened: Jobs<typeof testCatalogue>[] = [];
async function open() {
  const jobs = await openJobs({
    databaseUrl: stores.databaseUrl,
    config: { redisUrl },
    logger,
    catalogue: testCatalogue,
  });
  opened.push(jobs);
  return jobs;
}
afterEach(async () => {
  for (const jobs of opened.splice(0)) await jobs.close();
  if (redis) await redis.flushdb();
  else await stores.database.execute('DELETE FROM bullmq.job');
});

interface StoredJob {
  readonly state: string;
  readonly attempts_made: number;
}

/** Returns what BullMQ stores for jobs of a kind. */
async function stored(kind: string): Promise<StoredJob[]> {
  if (redis === undefined) {
    const sql = 'SELECT state::text AS state, attempts_made FROM bullmq.job WHERE queue = $1';
    return stores.database.query<{ state: string; attempts_made: number }>(sql, [kind]);
  }
  const queue = new Queue(kind, { connection: redis, prefix: 'runlake' });
  const found: StoredJob[] = [];
  for (const { id = '', attemptsMade } of await queue.getJobs()) {
    const state = await queue.getJobState(id);
    if (state !== 'unknown') found.push({ state, attempts_made: attemptsMade });
  }
  return found;
}

describe('a job', () => {
  it('calls its handler with its payload, and is deleted when it succeeds', async () => {
    const jobs = await open();
    const seen: unknown[] = [];
    jobs.work('quick', async (payload, { number }) => {
      seen.push([payload, number]);
    });
    await jobs.enqueue('quick', { n: 7 });
    await until('the job to run', () => seen.length > 0);
    expect(seen).toEqual([[{ n: 7 }, 1]]);
    await until('the job to be deleted', async () => (await stored('quick')).length === 0);
  });

  it('runs in another process than the one that enqueued it', async () => {
    const [here, there] = [await open(), await open()];
    const seen: number[] = [];
    there.work('quick', async ({ n }) => {
      seen.push(n);
    });
    for (const n of [1, 2, 3]) await here.enqueue('quick', { n });
    await until('all jobs to run', () => seen.length === 3);
    expect(seen.sort()).toEqual([1, 2, 3]);
  });

  it('runs at most as many concurrent jobs as its kind allows', async () => {
    const jobs = await open();
    let running = 0;
    let most = 0;
    let done = 0;
    jobs.work('single', async () => {
      most = Math.max(most, ++running);
      await new Promise(setImmediate);
      running -= 1;
      done += 1;
    });
    for (let n = 0; n < 10; n++) await jobs.enqueue('single', { n });
    await until('all jobs to run', () => done === 10);
    expect(most).toBe(1);
  });

  it('is not added while a job with the same id waits, and is added again after that one ran', async () => {
    const jobs = await open();
    const seen: number[] = [];
    await jobs.enqueue('quick', { n: 1 }, { jobId: 'same', delayMs: 50 });
    await jobs.enqueue('quick', { n: 2 }, { jobId: 'same' });
    await jobs.enqueue('quick', { n: 3 }, { jobId: 'other' });
    jobs.work('quick', async ({ n }) => {
      seen.push(n);
    });
    await until('both jobs to run', async () => seen.length === 2 && (await stored('quick')).length === 0);
    expect(seen.sort()).toEqual([1, 3]);
    await jobs.enqueue('quick', { n: 4 }, { jobId: 'same' });
    await until('the job to run again', () => seen.includes(4));
  });

  it('does not start before its delay', async () => {
    const jobs = await open();
    const started = performance.now();
    let seenAt = 0;
    jobs.work('quick', async () => {
      seenAt = performance.now();
    });
    await jobs.enqueue('quick', { n: 1 }, { delayMs: 300 });
    await until('the job to run', () => seenAt > 0);
    expect(seenAt - started).toBeGreaterThanOrEqual(295);
  });

  it('with a delay survives a crash of the process that enqueued it', async () => {
    const fixture = fileURLToPath(new URL('./enqueue-and-die.fixture.ts', import.meta.url));
    const child = spawn(process.execPath, [...childProcessOptions, fixture, stores.databaseUrl, '42', redisUrl ?? ''], {
      stdio: 'inherit',
    });
    expect(await once(child, 'exit')).toEqual([null, 'SIGKILL']);
    const jobs = await open();
    const seen: number[] = [];
    jobs.work('quick', async ({ n }) => {
      seen.push(n);
    });
    await until('the job to run', () => seen.length > 0);
    expect(seen).toEqual([42]);
  });
});

describe('a handler that fails', () => {
  it('is retried by the rules of its kind, then the job stays as failed', async () => {
    const jobs = await open();
    const attempts: number[] = [];
    jobs.work('quick', async (_, { number }) => {
      attempts.push(number);
      throw new Error('not today');
    });
    await jobs.enqueue('quick', { n: 1 });
    await until('the job to fail', async () => (await stored('quick')).some(({ state }) => state === 'failed'));
    expect(attempts).toEqual([1, 2, 3]);
    expect(await stored('quick')).toEqual([{ state: 'failed', attempts_made: 3 }]);
  });

  it('and then succeeds completes the job', async () => {
    const jobs = await open();
    const attempts: number[] = [];
    jobs.work('quick', async (_, { number }) => {
      attempts.push(number);
      if (number < 3) throw new Error('not yet');
    });
    await jobs.enqueue('quick', { n: 1 });
    await until('the job to be deleted', async () => attempts.length === 3 && (await stored('quick')).length === 0);
    expect(attempts).toEqual([1, 2, 3]);
  });

  it('to return in time is aborted and counts as failed, even if it ignores the abort signal', async () => {
    const jobs = await open();
    const reasons: unknown[] = [];
    jobs.work('hasty', async (_, { signal }) => {
      signal.addEventListener('abort', () => reasons.push(signal.reason));
      await new Promise(() => {});
    });
    await jobs.enqueue('hasty', {});
    await until('the job to fail', async () => (await stored('hasty')).some(({ state }) => state === 'failed'));
    expect(reasons).toEqual([1, 2].map(() => expect.objectContaining({ code: 'JOB_TIMED_OUT' })));
  });
});

describe('every', () => {
  it('runs repeatedly, once for all processes that schedule it', async () => {
    const all = [await open(), await open()];
    const seen: number[] = [];
    const started = performance.now();
    for (const jobs of all) {
      await jobs.every('quick', 200, { n: 1 });
      jobs.work('quick', async () => {
        seen.push(performance.now() - started);
      });
    }
    await until('four runs', () => seen.length >= 4);
    expect(performance.now() - started).toBeGreaterThan(400);
  });
});

describe('openJobs refuses', () => {
  it.each<[string, never, never]>([
    ['a payload of the wrong shape', 'quick' as never, { n: 'one' } as never],
    ['a payload with more than the schema has', 'quick' as never, { n: 1, m: 2 } as never],
    ['no payload', 'quick' as never, undefined as never],
    ['a kind that the catalogue lacks', 'unknown' as never, {} as never],
  ])('%s', async (_, name, payload) => {
    const jobs = await open();
    await expect(jobs.enqueue(name, payload)).rejects.toMatchObject({ code: 'INVALID_JOB' });
  });

  it('an unreachable database', async () => {
    const databaseUrl = 'postgres://runlake@127.0.0.1:1/none';
    await expect(openJobs({ databaseUrl, config: {}, logger })).rejects.toMatchObject({ code: 'DATABASE_UNAVAILABLE' });
  });
});

describe('a Redis', () => {
  it('that is unreachable is refused at once, with its name and variable', async () => {
    const startedMs = performance.now();
    const opening = openJobs({ databaseUrl: stores.databaseUrl, config: { redisUrl: 'redis://127.0.0.1:1' }, logger });
    await expect(opening).rejects.toMatchObject({
      code: 'JOBS_UNAVAILABLE',
      message: expect.stringContaining('Redis'),
      remedy: expect.stringContaining('RUNLAKE_REDIS_URL'),
    });
    expect(performance.now() - startedMs).toBeLessThan(10_000);
  });

  it('that accepts connections and never responds is refused in a bounded time', { timeout: 20_000 }, async () => {
    const sockets = new Set<Socket>();
    const silent = createServer((socket) => sockets.add(socket));
    const redisUrl = `redis://127.0.0.1:${await listenOnLoopback(silent)}`;
    onTestFinished(() => {
      for (const socket of sockets) socket.destroy();
      silent.close();
    });
    const opening = openJobs({ databaseUrl: stores.databaseUrl, config: { redisUrl }, logger });
    await expect(opening).rejects.toMatchObject({ code: 'JOBS_UNAVAILABLE' });
  });
});

describe('close', () => {
  it('waits for running jobs and starts no further ones', async () => {
    const jobs = await open();
    const { promise: running, resolve: begun } = deferred();
    const { promise: held, resolve: free } = deferred();
    const seen: number[] = [];
    jobs.work('single', async ({ n }) => {
      begun();
      await held;
      seen.push(n);
    });
    await jobs.enqueue('single', { n: 1 });
    await running;
    const closed = opened.pop()!.close();
    const other = await open();
    await other.enqueue('single', { n: 2 });
    free();
    await closed;
    expect(seen).toEqual([1]);
    expect(await stored('single')).toEqual([expect.objectContaining({ state: 'waiting' })]);
  });

  it('takes no worker, job or schedule after it', async () => {
    const jobs = await open();
    await opened.pop()!.close();
    expect(() => jobs.work('quick', async () => {})).toThrow(expect.objectContaining({ code: 'DRAINING' }));
    // Also of a kind whose queue was never opened.
    await expect(jobs.enqueue('quick', { n: 1 })).rejects.toMatchObject({ code: 'JOBS_UNAVAILABLE' });
    await expect(jobs.every('single', 60_000, { n: 1 })).rejects.toMatchObject({ code: 'JOBS_UNAVAILABLE' });
    await expect(jobs.check()).rejects.toMatchObject({ code: 'JOBS_UNAVAILABLE' });
  });

  it('closes all connections', async () => {
    const jobs = await open();
    jobs.work('quick', async () => {});
    await jobs.enqueue('quick', { n: 1 });
    await opened.pop()!.close();
    const listPostgresConnections = () =>
      stores.database.query(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name <> 'runlake'",
      );
    const listRedisConnections = async (client: Redis) => {
      const database = new URL(redisUrl ?? '').pathname.slice(1);
      const lines = String(await client.client('LIST')).split('\n');
      return lines.filter((line) => line.includes(` db=${database} `) && line.includes('runlake-'));
    };
    await until(
      'the connections to be closed',
      async () => (await (redis ? listRedisConnections(redis) : listPostgresConnections())).length === 0,
    );
  });
});
