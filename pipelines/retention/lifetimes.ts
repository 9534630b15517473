import { PromiseCache } from '../../infra/cache/promise-cache.ts';
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
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

/** 2100-01-01: a week later, as in the `TTL` of the tables, is within the range of a DateTime, which ends in 2106. */
export const neverSeconds = 4_102_444_800;

/** SQL: whether a merged row of a table with `expires_at` is neither deleted nor expired. */
export const liveCondition = 'isNull(deleted_at) AND expires_at > now()';
/**
 * As {@link liveCondition}, except that the row had not expired at a time that has passed: the parameter of this name, in
 * microseconds. Expired rows stay for a week.
 */
export const liveAt = (parameter: string) =>
  `isNull(deleted_at) AND expires_at > toDateTime(fromUnixTimestamp64Micro({${parameter}:Int64}))`;

const daySeconds = 86_400;

export type RetentionConfig = Pick<Config, 'retentionShortlivedDays' | 'retentionLonglivedDays'>;

/** The lifetime of a trace of a tier. It begins with the key time of the trace, which all its runs have in common. */
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

/** Returns a lifetime with the higher tier and the later expiry of the two. */
export function longerLifetime(one: Lifetime, other: Lifetime): Lifetime {
  return {
    tier: one.tier === 'longlived' ? one.tier : other.tier,
    expiresAtSeconds: Math.max(one.expiresAtSeconds, other.expiresAtSeconds),
  };
}

export function parseTierNumber(tier: number): TraceTier {
  return tier === traceTiers.shortlived ? 'shortlived' : 'longlived';
}

/** A changed tier of a project applies to traces that begin after this time. */
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
    return new Map(await Promise.all(ids.map(async (id) => [id, await this.#readTier(id)] as const)));
  }

  async #readTier(projectId: string): Promise<TraceTier> {
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

interface TraceOfTenant {
  readonly tenantId: string;
  readonly traceId: string;
}

/** Retention change requested after the trace was stored: extended or deleted. */
export interface TraceMark extends TraceOfTenant {
  /** New lifetime of a trace whose retention was extended. */
  readonly lifetime: Lifetime;
  readonly isDeleted: boolean;
}

/**
 * Interval at which a sink checks whether there are any marks. Until a sink has found the first mark, it stores late
 * events of the trace as before; the second run of `change-traces.ts` corrects them.
 */
const checkIntervalMs = 5_000;

/**
 * Reads `trace_marks` for the events of each batch. Without marks this costs one small query every five seconds.
 */
export class TraceMarks {
  readonly #clickhouse: ClickHouse;
  #hasMarks = false;
  #checkedAtMs = Number.NEGATIVE_INFINITY;

  constructor(clickhouse: ClickHouse) {
    this.#clickhouse = clickhouse;
  }

  /** Returns the marks of `traces`; traces without a mark are omitted. @throws errors of ClickHouse. */
  async of(traces: readonly TraceOfTenant[]): Promise<TraceMark[]> {
    if (traces.length === 0 || !(await this.#haveAny())) return [];
    const rows = await this.#clickhouse.query<{
      tenant_id: string;
      trace_id: string;
      tier: number;
      expires: number;
      deleted: number;
    }>({
      name: 'read-trace-marks',
      sql: `SELECT tenant_id, trace_id, max(trace_tier) AS tier, toUnixTimestamp(max(expires_at)) AS expires,
              max(isNotNull(deleted_at)) AS deleted
            FROM trace_marks WHERE (tenant_id, trace_id) IN keys GROUP BY tenant_id, trace_id`,
      external: {
        name: 'keys',
        structure: 'tenant_id UUID, trace_id UUID',
        rows: traces.map(({ tenantId, traceId }) => [tenantId, traceId]),
      },
    });
    return rows.map(({ tenant_id: tenantId, trace_id: traceId, tier, expires, deleted }) => ({
      tenantId,
      traceId,
      lifetime: { tier: parseTierNumber(tier), expiresAtSeconds: expires },
      isDeleted: deleted === 1,
    }));
  }

  async #haveAny(): Promise<boolean> {
    if (this.#hasMarks || performance.now() - this.#checkedAtMs < checkIntervalMs) return this.#hasMarks;
    const found = await this.#clickhouse.query({
      name: 'check-trace-marks',
      sql: 'SELECT 1 FROM trace_marks LIMIT 1',
    });
    this.#checkedAtMs = performance.now();
    this.#hasMarks = found.length > 0;
    return this.#hasMarks;
  }
}
