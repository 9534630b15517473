import { Queue, Worker } from 'bullmq';
import { Redis } from 'ioredis';
import { fault } from '../errors/runlake-error.ts';
import type { JobBackend } from './backend.ts';

const connectTimeoutMs = 10_000;
export const redisStore = { store: 'Redis', variable: 'RUNLAKE_REDIS_URL' } as const;

/**
 * Queues in Redis. Nothing in it is beyond being rebuilt from the database. `onLoss` hears of connections that fail later.
 *
 * @throws JOBS_UNAVAILABLE within 10 s where Redis cannot be reached or does not answer.
 */
export async function openRedisBackend(
  { url, authorities }: { readonly url: string; readonly authorities?: readonly string[] | undefined },
  onLoss: (err: Error) => void,
): Promise<JobBackend> {
  const tls = redisTls(url, authorities);
  await requireAnswer(url, tls);
  // Who enqueues hears of a Redis that is gone; workers wait for it without end, as BullMQ demands.
  const forQueues = new Redis(url, { maxRetriesPerRequest: 2, connectionName: 'runlake-queues', ...tls });
  const forWorkers = new Redis(url, {
    maxRetriesPerRequest: null,
    connectionName: 'runlake-workers',
    lazyConnect: true,
    ...tls,
  });
  for (const connection of [forQueues, forWorkers]) {
    connection.on('error', onLoss);
  }
  const prefix = 'runlake';
  return {
    openQueue: (name) => new Queue(name, { connection: forQueues, prefix }),
    openWorker: (name, run, limits) => new Worker(name, run, { connection: forWorkers, prefix, ...limits }),
    onReturn(listener) {
      // `ready` alone comes after the first connection too.
      let lost = false;
      forQueues.on('close', () => {
        lost = true;
      });
      forQueues.on('ready', () => {
        if (lost) listener();
        lost = false;
      });
    },
    close: async () => {
      forQueues.disconnect();
      forWorkers.disconnect();
    },
  };
}

/** For an address that begins with `rediss://`; the client would take its own list of authorities from there. */
export function redisTls(url: string, authorities: readonly string[] | undefined) {
  return authorities && url.startsWith('rediss://') ? { tls: { ca: [...authorities] } } : {};
}

/** The connections below try for ever, so whether Redis is there at all is found out with one that tries once. */
async function requireAnswer(url: string, tls: ReturnType<typeof redisTls>): Promise<void> {
  const probe = new Redis(url, {
    lazyConnect: true,
    retryStrategy: () => null,
    connectTimeout: connectTimeoutMs,
    ...tls,
  });
  let reason: unknown;
  probe.on('error', (err) => {
    reason ??= err;
  });
  const timer = setTimeout(() => probe.disconnect(), connectTimeoutMs);
  try {
    await probe.connect();
    await probe.ping();
  } catch (error) {
    throw fault('JOBS_UNAVAILABLE', redisStore, { cause: reason ?? error });
  } finally {
    clearTimeout(timer);
    probe.disconnect();
  }
}
