import { runlakeError } from '../errors/runlake-error.ts';
import { redisStore, withRedisProbe } from './redis-backend.ts';

const minMajorRelease = 7;
const timeoutMs = 5_000;

/**
 * Connects to Redis once and returns its version.
 * @throws STORE_TOO_OLD; PART_UNUSABLE if Redis evicts entries when its memory is full; the client's error if Redis cannot
 *   be reached.
 */
export function inspectRedis(url: string, authorities: readonly string[] | undefined): Promise<string> {
  return withRedisProbe(url, { authorities, timeoutMs, enableReadyCheck: false }, async (redis) => {
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
