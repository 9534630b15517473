import { Redis } from 'ioredis';
import { RateLimiterMemory, RateLimiterPostgres, RateLimiterRedis, RateLimiterRes } from 'rate-limiter-flexible';
import { runlakeError } from '../errors/runlake-error.ts';
import { buildRedisTlsOptions } from '../jobs/redis-backend.ts';
import type { Database } from '../postgres/database.ts';
import type { Logger } from '../telemetry/logger.ts';
import { counter } from '../telemetry/metrics.ts';

export interface RateLimiterOptions {
  readonly database: Pick<Database, 'query'>;
  /** If set, the counts are in Redis instead of the database. */
  readonly redisUrl?: string | undefined;
  /** Trusted CA certificates, in PEM. */
  readonly authorities?: readonly string[] | undefined;
  /** Maximum number of requests per second. If unset, there is no limit. */
  readonly perKey?: number | undefined;
  readonly perOrganization?: number | undefined;
  readonly logger: Logger;
}

export interface RateLimiter {
  /** Counts one request. @throws RATE_LIMITED with the time until the next request is allowed. */
  take(caller: { readonly keyId: string; readonly organizationId: string }): Promise<void>;
  /**
   * Counts one search with a share token, which needs no API key.
   *
   * @throws RATE_LIMITED, as {@link take} does.
   */
  takeSharedSearch(shared: { readonly targetId: string }): Promise<void>;
  close(): Promise<void>;
}

const rejections = counter('runlake_rate_limited_requests_total', 'Requests refused by a rate limit, by limit.', [
  'limit',
]);

const tableName = 'rate_limits';
/**
 * Maximum searches per second with one share token. The limit is needed because each search reads everything that is
 * shared, and anyone may have the token.
 */
const searchesPerShare = 10;

/**
 * Opens rate limits that all processes share, with windows of one second. While Redis or Postgres is unavailable, each
 * process counts separately, so that no request is refused merely because the store of the counts fails.
 */
export function openRateLimiter(options: RateLimiterOptions): RateLimiter {
  const { database, redisUrl, authorities, perKey, perOrganization, logger } = options;
  const redis =
    redisUrl === undefined
      ? undefined
      : new Redis(redisUrl, {
          maxRetriesPerRequest: 0,
          commandTimeout: 1_000,
          enableOfflineQueue: false,
          connectionName: 'runlake-rate-limits',
          ...buildRedisTlsOptions(redisUrl, authorities),
        });
  redis?.on('error', (err) => logger.warn({ err }, 'the Redis connection of the rate limits failed'));
  const postgres = {
    query: async ({ text, values, name }: { text: string; values: unknown[]; name?: string }) => {
      const rows = await database.query(text, values, { ...(name !== undefined && { name }) });
      return { rows, rowCount: rows.length };
    },
  };
  const open = (limit: string, points: number | undefined, idField: string) => {
    if (points === undefined) return async () => undefined;
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
    return async (id: string) => {
      try {
        await limiter.consume(id);
      } catch (rejection) {
        if (!(rejection instanceof RateLimiterRes)) throw rejection;
        rejections.inc({ limit });
        const retryAfterSeconds = Math.max(1, Math.ceil(rejection.msBeforeNext / 1_000));
        throw runlakeError('RATE_LIMITED', { points, limit }, { retryAfterSeconds });
      }
    };
  };
  const takeKeyPoint = open('RUNLAKE_RATE_LIMIT_PER_KEY', perKey, 'keyId');
  const takeOrganizationPoint = open('RUNLAKE_RATE_LIMIT_PER_ORGANIZATION', perOrganization, 'organizationId');
  const takeSharePoint = open('searches with a share token', searchesPerShare, 'sharedId');
  return {
    async take({ keyId, organizationId }) {
      await takeKeyPoint(keyId);
      await takeOrganizationPoint(organizationId);
    },
    takeSharedSearch: ({ targetId }) => takeSharePoint(targetId),
    async close() {
      redis?.disconnect();
    },
  };
}
