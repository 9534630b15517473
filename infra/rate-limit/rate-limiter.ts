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
   * Counts one search with a share token, which needs no API key. `targetId` is stored, so it must not be the token.
   *
   * @throws RATE_LIMITED, as {@link take} does.
   */
  takeSharedSearch(shared: { readonly targetId: string }): Promise<void>;
  /**
   * Signs in a client of an address with `signIn`, unless too many sign-ins of the address have failed. An error counts as
   * a failure if `isFailure` returns true for it.
   *
   * @param address Address of the client. A kind of sign-in with a limit of its own puts its name before it.
   * @throws SIGN_IN_LIMITED; the errors of `signIn`
   */
  limitSignIn<Result>(
    address: string,
    signIn: () => Promise<Result>,
    isFailure: (error: unknown) => boolean,
  ): Promise<Result>;
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
/** Maximum failed sign-ins of one address within {@link failureWindowSeconds}. */
const failedSignIns = 20;
const failureWindowSeconds = 60;

/**
 * Opens rate limits that all processes share. Windows are one second, except for failed sign-ins. While Redis or
 * Postgres is unavailable, each process counts separately, so that no request is refused merely because the store of
 * the counts fails.
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
  const openCounts = (idField: string, points: number, duration: number) => {
    const shared = { points, duration, keyPrefix: `runlake:${idField}` };
    const insuranceLimiter = new RateLimiterMemory(shared);
    // Refuses a client beyond its limit from memory, so that its requests do not load the store.
    const stored = { ...shared, inMemoryBlockOnConsumed: points, insuranceLimiter };
    return redis
      ? new RateLimiterRedis({ ...stored, storeClient: redis })
      : new RateLimiterPostgres({
          ...stored,
          storeClient: postgres,
          storeType: 'pool',
          tableName,
          tableCreated: true,
        });
  };
  const open = (limit: string, points: number | undefined, idField: string) => {
    if (points === undefined) return async () => undefined;
    const limiter = openCounts(idField, points, 1);
    return async (id: string) => {
      try {
        await limiter.consume(id);
      } catch (rejection) {
        if (!(rejection instanceof RateLimiterRes)) throw rejection;
        rejections.inc({ limit });
        throw runlakeError('RATE_LIMITED', { points, limit }, { retryAfterSeconds: countSeconds(rejection) });
      }
    };
  };
  const takeKeyPoint = open('RUNLAKE_RATE_LIMIT_PER_KEY', perKey, 'keyId');
  const takeOrganizationPoint = open('RUNLAKE_RATE_LIMIT_PER_ORGANIZATION', perOrganization, 'organizationId');
  const takeSharePoint = open('searches with a share token', searchesPerShare, 'sharedId');
  const failures = openCounts('failedSignIn', failedSignIns, failureWindowSeconds);
  /** Number of sign-ins in progress, by address. */
  const signIns = new Map<string, number>();
  return {
    async take({ keyId, organizationId }) {
      await takeKeyPoint(keyId);
      await takeOrganizationPoint(organizationId);
    },
    takeSharedSearch: ({ targetId }) => takeSharePoint(targetId),
    async limitSignIn(address, signIn, isFailure) {
      // Others in progress may fail too, and a client can start any number at once.
      const others = signIns.get(address) ?? 0;
      signIns.set(address, others + 1);
      try {
        const found = await failures.get(address);
        const failed = found?.consumedPoints ?? 0;
        if (failed + others >= failedSignIns) {
          rejections.inc({ limit: 'failed sign-ins' });
          const limits = { points: failedSignIns, seconds: failureWindowSeconds };
          // Those in progress end soon, and may succeed.
          const retryAfterSeconds = found && failed >= failedSignIns ? countSeconds(found) : 1;
          throw runlakeError('SIGN_IN_LIMITED', limits, { retryAfterSeconds });
        }
        return await signIn();
      } catch (error) {
        if (isFailure(error)) await failures.penalty(address, 1);
        throw error;
      } finally {
        const left = (signIns.get(address) ?? 1) - 1;
        if (left > 0) signIns.set(address, left);
        else signIns.delete(address);
      }
    },
    async close() {
      redis?.disconnect();
    },
  };
}

function countSeconds({ msBeforeNext }: RateLimiterRes): number {
  return Math.max(1, Math.ceil(msBeforeNext / 1_000));
}
