/**
 * Divides the hours of a set of runs into those that statistics read from `run_facts` and those whose facts are outdated
 * (`count-facts.ts`), which they read from `runs`. Each run starts in one hour, so no run is read twice.
 */
import type { QueryParameter } from '../../../infra/clickhouse/clickhouse.ts';
import type { Database } from '../../../infra/postgres/pool.ts';
import { nilUuid } from '../../ingest/run-event/run-event.ts';
import { runColumns, shownValues, startedAtMicros } from '../run-columns.ts';

/** What statistics need of a run, as SQL over `runs FINAL`. The list `runs` of `run_facts` has the same names. */
export const statColumns = {
  id: 'id',
  trace_id: 'trace_id',
  started: startedAtMicros,
  latency: `${runColumns.endedAtMicros} - ${startedAtMicros}`,
  first_token: `${runColumns.firstTokenTimeMicros} - ${startedAtMicros}`,
  failed: 'isNotNull(error)',
  // Of the same type as in the list, so that ClickHouse does not convert the values of the list.
  shown_name: `toLowCardinality(${shownValues.name})`,
  shown_type: `toLowCardinality(${shownValues.run_type})`,
} as const satisfies Record<string, string>;

export type StatColumn = keyof typeof statColumns;

/** The hours of a workspace whose facts are outdated, in seconds since 1970. */
export type DirtyHourList = readonly number[];

/** If more hours are dirty, statistics do not use `run_facts`. */
const maxDirtyHours = 1_000;

/**
 * Reads the dirty hours of a workspace. Returns undefined if there are too many, or if hours of runs may be neither dirty
 * nor listed. Read them before the facts, because an hour that is no longer dirty then has newer facts.
 *
 * @throws errors of Postgres.
 */
export async function readDirtyHours(
  database: Pick<Database, 'query'>,
  tenantId: string,
): Promise<DirtyHourList | undefined> {
  const rows = await database.query<{ tenant: string; seconds: number }>(
    `SELECT DISTINCT tenant_id AS tenant, extract(epoch FROM hour)::float8 AS seconds FROM (
       SELECT tenant_id, hour FROM usage_dirty_hours WHERE tenant_id = $1
       UNION ALL SELECT tenant_id, hour FROM fact_dirty_hours WHERE tenant_id IN ($1, $2)
     ) AS dirty_hours LIMIT ${maxDirtyHours + 1}`,
    [tenantId, nilUuid],
  );
  if (rows.length > maxDirtyHours || rows.some(({ tenant }) => tenant === nilUuid)) return undefined;
  return rows.map(({ seconds }) => seconds);
}

interface HoursCondition {
  readonly sql: string;
  readonly params: Readonly<Record<string, QueryParameter>>;
}

export interface HourDivision {
  /** Condition on `run_facts`. */
  readonly facts: HoursCondition;
  /** Condition on `runs`; absent if no hour has to be read there. */
  readonly runs?: HoursCondition;
}

const hourSeconds = 3_600;
/** The last whole hour that a ClickHouse `DateTime` can hold, in 2106. */
export const lastHourSeconds = 4_294_965_600;

/**
 * Divides the hours from a time on. All runs that start in the hours of `facts` are in the set.
 *
 * @param edge Time range whose hours contain runs of the set and others. These hours are read from `runs`. Zero if the set
 *   has no lower bound.
 * @param prefix Begins the names of the parameters.
 */
export function divideHours(
  dirty: DirtyHourList,
  edge: { readonly fromMicros: number; readonly untilMicros: number },
  prefix: string,
): HourDivision {
  const toHour = (micros: number) => Math.min(Math.floor(micros / 1e6 / hourSeconds) * hourSeconds, lastHourSeconds);
  const isBounded = edge.untilMicros > 0;
  const [first, last] = isBounded ? [toHour(edge.fromMicros), toHour(edge.untilMicros)] : [0, -1];
  const edges = isBounded ? [...new Set([first, last])] : [];
  const direct = [...new Set([...edges, ...dirty.filter((hour) => hour >= first)])];
  const runs = direct.length > 0 && {
    // Bounds on the time itself let ClickHouse use the sorting key.
    sql: `start_time >= fromUnixTimestamp64Micro({${prefix}_first:Int64}) AND start_time < fromUnixTimestamp64Micro({${prefix}_end:Int64})
      AND toUnixTimestamp(toStartOfHour(start_time)) IN {${prefix}_hours:Array(UInt32)}`,
    params: {
      [`${prefix}_first`]: Math.min(...direct) * 1e6,
      [`${prefix}_end`]: (Math.max(...direct) + hourSeconds) * 1e6,
      [`${prefix}_hours`]: direct,
    },
  };
  return {
    facts: {
      sql: `toUnixTimestamp(hour) >= {${prefix}_from:Int64} AND toUnixTimestamp(hour) NOT IN {${prefix}_dirty:Array(UInt32)}`,
      params: { [`${prefix}_from`]: isBounded ? last + hourSeconds : 0, [`${prefix}_dirty`]: direct },
    },
    ...(runs && { runs }),
  };
}
