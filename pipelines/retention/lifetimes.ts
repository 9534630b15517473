import { PromiseCache } from '../../infra/cache/promise-cache.ts';
import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
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
export const buildLiveCondition = (parameter: string) =>
  `isNull(deleted_at) AND expires_at > toDateTime(fromUnixTimestamp64Micro({${parameter}:Int64}))`;

const daySeconds = 86_400;

export type RetentionConfig = Pick<Config, 'retentionShortlivedDays' | 'retentionLonglivedDays'>;

/** How long the traces of a project are kept. */
export interface ProjectRetention {
  readonly tier: TraceTier;
  /** Days that longlived traces are kept, if fewer than those of the installation. */
  readonly longlivedDays?: number | undefined;
}

/**
 * Projects that do not state a retention. Their traces are longlived, so that nothing expires early because a project
 * was forgotten.
 */
export const defaultRetention: ProjectRetention = { tier: 'longlived' };

/**
 * Checks the days that longlived traces of a project are to be kept.
 *
 * @throws RETENTION_OUT_OF_RANGE unless traces expire in this installation, and the days lie between those of its tiers.
 */
export function checkLonglivedDays(
  { retentionShortlivedDays: min = 1, retentionLonglivedDays: max }: RetentionConfig,
  days: number | null | undefined,
): void {
  if (days === null || days === undefined || (max !== undefined && days >= min && days <= max)) return;
  const [reason, remedy] =
    max === undefined
      ? ['traces do not expire in this installation', 'Set RUNLAKE_RETENTION_LONGLIVED_DAYS, or leave the field out']
      : [`the installation allows ${min} to ${max} days`, 'Use a number in this range, or change the settings'];
  throw runlakeError('RETENTION_OUT_OF_RANGE', { days, reason, remedy });
}

/**
 * The lifetime of a trace. It begins with the key time of the trace, which all its runs have in common. Days of a project
 * outside of the range of the installation, whose settings may have changed, count as the nearest in range.
 */
export function computeLifetime(
  { retentionShortlivedDays, retentionLonglivedDays }: RetentionConfig,
  { tier, longlivedDays: ownDays = Number.POSITIVE_INFINITY }: ProjectRetention,
  traceTimeMicros: number,
): Lifetime {
  const longlivedDays =
    retentionLonglivedDays && Math.max(Math.min(ownDays, retentionLonglivedDays), retentionShortlivedDays ?? 1);
  const days = tier === 'shortlived' ? (retentionShortlivedDays ?? longlivedDays) : longlivedDays;
  if (days === undefined) return { tier, expiresAtSeconds: neverSeconds };
  const startSeconds = Math.floor(traceTimeMicros / 1_000_000);
  return { tier, expiresAtSeconds: Math.min(startSeconds + days * daySeconds, neverSeconds) };
}

/** Returns a lifetime with the higher tier and the later expiry of two lifetimes. */
export function mergeLifetimes(one: Lifetime, other: Lifetime): Lifetime {
  return {
    tier: one.tier === 'longlived' ? one.tier : other.tier,
    expiresAtSeconds: Math.max(one.expiresAtSeconds, other.expiresAtSeconds),
  };
}

export function parseTierNumber(tier: number): TraceTier {
  return tier === traceTiers.shortlived ? 'shortlived' : 'longlived';
}

/** A changed retention of a project applies to traces that begin after this time. */
const cacheMs = 5_000;

/** Reads the retention of projects, and caches it. */
export class ProjectRetentions {
  readonly #database: Pick<Sql, 'query'>;
  readonly #known = new PromiseCache<ProjectRetention>({ max: 50_000, ttlMs: cacheMs });

  constructor(database: Pick<Sql, 'query'>) {
    this.#database = database;
  }

  /** Returns the retention of each project. @throws errors of Postgres. */
  async of(projectIds: Iterable<string>): Promise<ReadonlyMap<string, ProjectRetention>> {
    const ids = [...new Set(projectIds)];
    return new Map(await Promise.all(ids.map(async (id) => [id, await this.#find(id)] as const)));
  }

  async #find(projectId: string): Promise<ProjectRetention> {
    const found = await this.#known.get(
      projectId,
      async () => (await readRetentions(this.#database, [projectId])).get(projectId) ?? defaultRetention,
    );
    return found ?? defaultRetention;
  }
}

/** Reads the retention of projects, as it is now. Projects that do not exist are omitted. @throws errors of Postgres. */
export async function readRetentions(
  database: Pick<Sql, 'query'>,
  projectIds: Iterable<string>,
): Promise<ReadonlyMap<string, ProjectRetention>> {
  const rows = await database.query<{ id: string; tier: TraceTier | null; days: number | null }>(
    'SELECT id, trace_tier AS tier, longlived_ttl_days AS days FROM projects WHERE id = ANY ($1)',
    [[...new Set(projectIds)]],
  );
  return new Map(
    rows.map(({ id, tier, days }) => [id, { tier: tier ?? defaultRetention.tier, longlivedDays: days ?? undefined }]),
  );
}
