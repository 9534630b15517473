import { PromiseCache } from '../../infra/cache/promise-cache.ts';
import type { Config } from '../../infra/config/settings.ts';
import type { Sql } from '../../infra/postgres/pool.ts';

/** Trace tiers as clients name them, and their numbers in ClickHouse. A higher number wins. */
export const traceTiers = { shortlived: 1, longlived: 2 } as const;
export type TraceTier = keyof typeof traceTiers;

/** Tier of a trace, and the time when its rows expire. */
export interface Lifetime {
  readonly tier: TraceTier;
  /** In seconds since 1970; {@link neverSeconds} if the trace never expires. */
  readonly expiresAtSeconds: number;
}

/**
 * 2100-01-01. The `TTL` of the tables adds a week to it; the sum is within the range of a DateTime, which ends in 2106.
 */
export const neverSeconds = 4_102_444_800;

/** SQL condition: a merged row of a table with `expires_at` is neither deleted nor expired. */
export const liveCondition = 'isNull(deleted_at) AND expires_at > now()';
/**
 * Builds a condition like {@link liveCondition}, but for a past time: the row had not expired at that time. The query
 * parameter with the given name contains the time in microseconds. Expired rows stay for a week.
 */
export const liveAt = (parameter: string) =>
  `isNull(deleted_at) AND expires_at > toDateTime(fromUnixTimestamp64Micro({${parameter}:Int64}))`;

const daySeconds = 86_400;

export type RetentionConfig = Pick<Config, 'retentionShortlivedDays' | 'retentionLonglivedDays'>;

/**
 * Returns the lifetime of a trace of a tier. It begins with the key time of the trace, which is the same for all its
 * runs.
 */
export function computeLifetime(
  { retentionShortlivedDays, retentionLonglivedDays }: RetentionConfig,
  tier: TraceTier,
  traceTimeMicros: number,
): Lifetime {
  const shortlivedDays = retentionShortlivedDays ?? retentionLonglivedDays;
  const days = tier === 'shortlived' ? shortlivedDays : retentionLonglivedDays;
  if (days === undefined) return { tier, expiresAtSeconds: neverSeconds };
  const startSeconds = Math.floor(traceTimeMicros / 1_000_000);
  return { tier, expiresAtSeconds: Math.min(startSeconds + days * daySeconds, neverSeconds) };
}

/** Returns a lifetime with the higher tier and the later expiry of two lifetimes. */
export function longerLifetime(one: Lifetime, other: Lifetime): Lifetime {
  return {
    tier: one.tier === 'longlived' ? one.tier : other.tier,
    expiresAtSeconds: Math.max(one.expiresAtSeconds, other.expiresAtSeconds),
  };
}

export function parseTierNumber(tier: number): TraceTier {
  return tier === traceTiers.shortlived ? 'shortlived' : 'longlived';
}

/** Duration of caching. A changed tier of a project applies to traces that begin after this time. */
const cacheMs = 5_000;

/**
 * Reads the tiers of projects, and caches them. Traces of a project without a tier are longlived, so that nothing
 * expires early because a project was forgotten.
 */
export class ProjectTiers {
  readonly #database: Pick<Sql, 'query'>;
  readonly #known = new PromiseCache<TraceTier>({ max: 50_000, ttlMs: cacheMs });

  constructor(database: Pick<Sql, 'query'>) {
    this.#database = database;
  }

  /** Returns the tier of each project. @throws errors of Postgres. */
  async of(projectIds: Iterable<string>): Promise<ReadonlyMap<string, TraceTier>> {
    const ids = [...new Set(projectIds)];
    return new Map(await Promise.all(ids.map(async (id) => [id, await this.#findTier(id)] as const)));
  }

  async #findTier(projectId: string): Promise<TraceTier> {
    const tier = await this.#known.get(projectId, async () => {
      const [row] = await this.#database.query<{ tier: TraceTier | null }>(
        'SELECT trace_tier AS tier FROM projects WHERE id = $1',
        [projectId],
      );
      return row?.tier ?? 'longlived';
    });
    return tier ?? 'longlived';
  }
}
