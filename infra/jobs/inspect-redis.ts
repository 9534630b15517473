import { Redis } from 'ioredis';
import { fault } from '../errors/runlake-error.ts';
import { redisTls } from './redis-backend.ts';

const oldestRelease = 7;
const answerWithinMs = 5_000;

/**
 * Asks Redis once, and says which release it is.
 * @throws PART_UNFIT where it is too old or forgets entries on its own; what the client throws where it cannot be asked.
 */
export async function inspectRedis(url: string, authorities: readonly string[] | undefined): Promise<string> {
  const redis = new Redis(url, {
    lazyConnect: true,
    retryStrategy: () => null,
    connectTimeout: answerWithinMs,
    commandTimeout: answerWithinMs,
    enableReadyCheck: false,
    ...redisTls(url, authorities),
  });
  let reason: unknown;
  redis.on('error', (error) => {
    reason ??= error;
  });
  try {
    await redis.connect();
    await redis.ping();
    const told = await redis.info();
    const field = (name: string) => new RegExp(`^${name}:(.*)$`, 'm').exec(told)?.[1]?.trim() ?? '';
    const release = field('redis_version');
    if (Number.parseInt(release, 10) < oldestRelease) {
      throw fault('STORE_TOO_OLD', {
        store: 'Redis',
        found: release,
        needed: String(oldestRelease),
        variable: 'RUNLAKE_REDIS_URL',
      });
    }
    const policy = field('maxmemory_policy');
    if (policy !== '' && policy !== 'noeviction') {
      throw fault('PART_UNFIT', {
        reason: `Redis forgets entries when its memory is full (maxmemory-policy is ${policy}), also queued jobs`,
        remedy: 'Run: CONFIG SET maxmemory-policy noeviction, and set it in its configuration file.',
      });
    }
    return release;
  } catch (error) {
    throw reason ?? error;
  } finally {
    redis.disconnect();
  }
}
