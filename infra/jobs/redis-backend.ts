import { Queue, Worker } from 'bullmq';
import { Redis } from 'ioredis';
import { runlakeError } from '../errors/runlake-error.ts';
import type { JobBackend } from './backend.ts';

const connectTimeoutMs = 10_000;
export const redisStore = { store: 'Redis', variable: 'RUNLAKE_REDIS_URL' } as const;

/**
 * Opens queues in Redis, whose contents can all be rebuilt from Postgres. `onLoss` is called when a connection fails
 * later.
 *
 * @throws JOBS_UNAVAILABLE after 10 s if Redis does not respond, ACCESS_DENIED_BY_STORE if it rejects the account.
 */
export async function openRedisBackend(
  { url, authorities }: { readonly url: string; readonly authorities?: readonly string[] | undefined },
  onLoss: (err: Error) => void,
): Promise<JobBackend> {
  const tls = buildRedisTlsOptions(url, authorities);
  await queryRedis(url, authorities);
  // Enqueueing fails if Redis is unavailable. Workers retry forever, because BullMQ requires it.
  const queueClient = new Redis(url, { maxRetriesPerRequest: 2, connectionName: 'runlake-queues', ...tls });
  const workerClient = new Redis(url, {
    maxRetriesPerRequest: null,
    connectionName: 'runlake-workers',
    lazyConnect: true,
    ...tls,
  });
  for (const connection of [queueClient, workerClient]) {
    connection.on('error', onLoss);
  }
  const prefix = 'runlake';
  return {
    openQueue: (name) => new Queue(name, { connection: queueClient, prefix }),
    openWorker: (name, run, limits) => new Worker(name, run, { connection: workerClient, prefix, ...limits }),
    onReconnect(listener) {
      // `ready` is also emitted for the first connection, which is not a reconnect.
      let wasLost = false;
      queueClient.on('close', () => {
        wasLost = true;
      });
      queueClient.on('ready', () => {
        if (wasLost) listener();
        wasLost = false;
      });
    },
    close: async () => {
      queueClient.disconnect();
      workerClient.disconnect();
    },
  };
}

/**
 * Returns the TLS options for `rediss://` addresses; without them the client trusts only its default CA certificates.
 */
export function buildRedisTlsOptions(url: string, authorities: readonly string[] | undefined) {
  return authorities && url.startsWith('rediss://') ? { tls: { ca: [...authorities] } } : {};
}

/** Redis errors that concern authentication or permissions. */
const accessErrorPattern = /^(?:WRONGPASS|NOAUTH|NOPERM)\b|invalid password|without any password configured/;

/**
 * Pings Redis once, because the connections of the queues would retry forever.
 * @throws JOBS_UNAVAILABLE after 10 s if Redis does not respond, ACCESS_DENIED_BY_STORE if it rejects the account.
 */
export async function queryRedis(url: string, authorities: readonly string[] | undefined): Promise<void> {
  try {
    await withRedisProbe(url, { authorities, timeoutMs: connectTimeoutMs }, async () => {});
  } catch (cause) {
    const words = cause instanceof Error ? cause.message : '';
    if (accessErrorPattern.test(words)) {
      throw runlakeError('ACCESS_DENIED_BY_STORE', { store: 'Redis', reason: words.slice(0, 200) }, { cause });
    }
    throw runlakeError('JOBS_UNAVAILABLE', redisStore, { cause });
  }
}

/**
 * Connects to Redis once, pings it, runs `work` and disconnects.
 *
 * @param options `timeoutMs` limits all of it; `enableReadyCheck`: wait while Redis loads its data, true by default.
 * @throws the first error of the connection, otherwise the error of `work`.
 */
export async function withRedisProbe<Result>(
  url: string,
  options: {
    readonly authorities: readonly string[] | undefined;
    readonly timeoutMs: number;
    readonly enableReadyCheck?: boolean;
  },
  work: (redis: Redis) => Promise<Result>,
): Promise<Result> {
  const { authorities, timeoutMs, enableReadyCheck = true } = options;
  const redis = new Redis(url, {
    lazyConnect: true,
    retryStrategy: () => null,
    connectTimeout: timeoutMs,
    enableReadyCheck,
    ...buildRedisTlsOptions(url, authorities),
  });
  let reason: unknown;
  const onError = (error: unknown) => {
    reason ??= error;
  };
  redis.on('error', onError);
  const timer = setTimeout(() => {
    onError(new Error(`no response within ${timeoutMs / 1_000} s`));
    redis.disconnect();
  }, timeoutMs);
  try {
    await redis.connect();
    await redis.ping();
    return await work(redis);
  } catch (error) {
    throw reason ?? error;
  } finally {
    clearTimeout(timer);
    redis.disconnect();
  }
}
