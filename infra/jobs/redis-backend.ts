import { Queue, Worker } from 'bullmq';
import { Redis, type RedisOptions } from 'ioredis';
import { runlakeError } from '../errors/runlake-error.ts';
import type { JobBackend } from './backend.ts';

const connectTimeoutMs = 10_000;
const inspectionOptions = { connectTimeout: 5_000, commandTimeout: 5_000, enableReadyCheck: false };
const minMajorRelease = 7;
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
    await withRedisProbe(url, authorities, { connectTimeout: connectTimeoutMs }, async () => {});
  } catch (cause) {
    const words = cause instanceof Error ? cause.message : '';
    if (accessErrorPattern.test(words)) {
      throw runlakeError('ACCESS_DENIED_BY_STORE', { store: 'Redis', reason: words.slice(0, 200) }, { cause });
    }
    throw runlakeError('JOBS_UNAVAILABLE', redisStore, { cause });
  }
}

/**
 * Connects to Redis once and returns its version.
 * @throws STORE_TOO_OLD; PART_UNUSABLE if Redis evicts entries when its memory is full; the client's error if Redis cannot
 *   be reached.
 */
export function inspectRedis(url: string, authorities: readonly string[] | undefined): Promise<string> {
  return withRedisProbe(url, authorities, inspectionOptions, async (redis) => {
    const info = await redis.info();
    const readField = (name: string) => new RegExp(`^${name}:(.*)$`, 'm').exec(info)?.[1]?.trim() ?? '';
    const release = readField('redis_version');
    if (Number.parseInt(release, 10) < minMajorRelease) {
      throw runlakeError('STORE_TOO_OLD', { ...redisStore, found: release, needed: String(minMajorRelease) });
    }
    const policy = readField('maxmemory_policy');
    if (policy !== '' && policy !== 'noeviction') {
      throw runlakeError('PART_UNUSABLE', {
        reason: `Redis evicts entries, including queued jobs, when its memory is full (maxmemory-policy is ${policy})`,
        remedy: 'Run: CONFIG SET maxmemory-policy noeviction, and set it in the Redis configuration file.',
      });
    }
    return release;
  });
}

/**
 * Connects to Redis once, pings it, runs `work` and disconnects, at the latest after 10 s.
 *
 * @throws the first error of the connection, otherwise the error of `work`.
 */
async function withRedisProbe<Result>(
  url: string,
  authorities: readonly string[] | undefined,
  options: RedisOptions,
  work: (redis: Redis) => Promise<Result>,
): Promise<Result> {
  const redis = new Redis(url, {
    lazyConnect: true,
    retryStrategy: () => null,
    ...options,
    ...buildRedisTlsOptions(url, authorities),
  });
  let reason: unknown;
  redis.on('error', (error) => {
    reason ??= error;
  });
  const timer = setTimeout(() => redis.disconnect(), connectTimeoutMs);
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
