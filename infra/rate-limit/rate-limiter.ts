import { Redis } from 'ioredis';
import { RateLimiterMemory, RateLimiterPostgres, RateLimiterRedis, RateLimiterRes } from 'rate-limiter-flexible';
import { runlakeError } from '../errors/runlake-error.ts';
import { redisTls } from '../jobs/redis-backend.ts';
import type { Database } from '../postgres/database.ts';
import type { Logger } from '../telemetry/logger.ts';
import { counter } from '../telemetry/metrics.ts';

export interface RateLimiterOptions {
  readonly database: Pick<Database, 'query'>;
  /** If set, the counts are in Redis instead of the database. */
  readonly redisUrl?: string | undefined;
  /** Trusted CA certificates, in PEM. */
  readonly authorities?: readonly string[] | undefined;
  /** Requests per second. Unset: no limit. */
  readonly perKey?: number | undefined;
  readonly perOrganization?: number | undefined;
  readonly logger: Logger;
}

export interface RateLimiter {
  /** Counts one request. @throws RATE_LIMITED with the time until the next request is allowed. */
  take(caller: { readonly keyId: string; readonly organizationId: string }): Promise<void>;
  close(): Promise<void>;
}

const rejections = counter('runlake_rate_limited_requests_total', 'Requests refused by a rate limit, by limit.', [
  'limit',
]);

const tableName = 'rate_limits';

/**
 * Opens rate limits that all processes share, with windows of one second. While Redis or Postgres is unavailable, each
 * process counts on its own, so that requests are not refused because counting fails.
 *
 * @returns undefined if no limit is set.
 */
export function openRateLimiter(options: RateLimiterOptions): RateLimiter | undefined {
  const { database, redisUrl, authorities, perKey, perOrganization, logger } = options;
  if (perKey === undefined && perOrganization === undefined) return undefined;
  const redis =
    redisUrl === undefined
      ? undefined
      : new Redis(redisUrl, {
          maxRetriesPerRequest: 0,
          commandTimeout: 1_000,
          enableOfflineQueue: false,
          connectionName: 'runlake-rate-limits',
          ...redisTls(redisUrl, authorities),
        });
  redis?.on('error', (err) => logger.warn({ err }, 'the Redis connection of the rate limits failed'));
  const postgres = {
    query: async ({ text, values, name }: { text: string; values: unknown[]; name?: string }) => {
      const rows = await database.query(text, values, { ...(name !== undefined && { name }) });
      return { rows, rowCount: rows.length };
    },
  };
  const limits = [
    { limit: 'RUNLAKE_RATE_LIMIT_PER_KEY', points: perKey, idField: 'keyId' },
    { limit: 'RUNLAKE_RATE_LIMIT_PER_ORGANIZATION', points: perOrganization, idField: 'organizationId' },
  ] as const;
  const limiters = limits.flatMap(({ limit, points, idField }) => {
    if (points === undefined) return [];
    const shared = { points, duration: 1, keyPrefix: `runlake:${idField}` };
    const insuranceLimiter = new RateLimiterMemory(shared);
    const limiter = redis
      ? new RateLimiterRedis({ ...shared, storeClient: redis, insuranceLimiter })
      : new RateLimiterPostgres({
          ...shared,
          storeClient: postgres,
          storeType: 'pool',
          tableName,
          tableCreated: true,
          insuranceLimiter,
        });
    return [{ limit, points, idField, limiter }];
  });
  return {
    async take(caller) {
      for (const { limit, points, idField, limiter } of limiters) {
        try {
          await limiter.consume(caller[idField]);
        } catch (rejection) {
          if (!(rejection instanceof RateLimiterRes)) throw rejection;
          rejections.inc({ limit });
          const retryAfterSeconds = Math.max(1, Math.ceil(rejection.msBeforeNext / 1_000));
          throw runlakeError('RATE_LIMITED', { points, limit }, { retryAfterSeconds });
        }
      }
    },
    async close() {
      redis?.disconnect();
    },
  };
}
