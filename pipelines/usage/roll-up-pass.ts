/**
 * One pass of the usage roll-up: counts every noted hour again, whole.
 *
 * Invariant: an hour whose traces changed after it was last counted has a note. So whatever dies at whatever step, the
 * notes that are left lead the next pass to the same hours, and counting one twice changes nothing.
 *
 * All in one Postgres transaction:
 *   1. The advisory lock: one pass at a time over all processes. Who does not get it leaves; the holder does the work.
 *   2. The pass number, from a sequence, under the lock: a later pass always has the higher number, and its rows win.
 *   3. The notes, at most so many. A note that arrives from here on stays for the next pass.
 *   4. The count: a new row for each touched hour and dimension, in place of the one there was. Died before or within: the
 *      notes are still there. Rows of a part of the hours are right already and will be counted again. What a count that
 *      outlived its process writes after this one has a lower pass and never shows.
 *   5. The days of those hours, summed again from all their hours. Died before or within: as in step 4. Until it is done,
 *      reports of whole days do not show what reports of hours do.
 *   6. The days are noted as changed by this pass (`usage-changes.ts`), and exactly the notes that were read are deleted, by
 *      their numbers; commit. Died before: the hours are counted again.
 */
import type { Command, ExternalTable, Warehouse } from '../../infra/clickhouse/warehouse.ts';
import type { TouchedHour } from '../../infra/event-log/event-log.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { noteChanges } from './usage-changes.ts';
import { delaySeconds } from './usage-metrics.ts';

export interface PassPorts {
  readonly database: Database;
  readonly warehouse: Warehouse;
}

export interface PassLimits {
  /** Most distinct hours of a pass; the rest waits for the next one. Default {@link usualHours}. */
  readonly hours?: number;
  /** Most notes that are read for them. Default 200,000. */
  readonly notes?: number;
  /** How long the count may take, in milliseconds. Default 10 minutes. */
  readonly timeoutMs?: number;
}

export interface PassOutcome {
  /** `busy`: another process was at it. `idle`: nothing was noted. */
  readonly outcome: 'counted' | 'idle' | 'busy';
  readonly hours: number;
  /** Whether a limit was reached, so that notes are left. */
  readonly more: boolean;
}

/** Most distinct hours of a pass where nothing else is said. */
export const usualHours = 20_000;

/** Any constant that nothing else in this database locks. */
const lockKey = 7_215_508_431;

/**
 * Runs a pass.
 * @throws what Postgres or ClickHouse throw; nothing is lost then, and the next pass repairs.
 */
export async function rollUpPass(ports: PassPorts, limits: PassLimits = {}): Promise<PassOutcome> {
  const { hours: maxHours = usualHours, notes: maxNotes = 200_000, timeoutMs = 600_000 } = limits;
  const startedAtMs = performance.now();
  let longestWaitSeconds = 0;
  const outcome = await ports.database.transaction<PassOutcome>(async (transaction) => {
    // The transaction idles while ClickHouse counts, and must not be ended for it.
    await transaction.query('SET LOCAL idle_in_transaction_session_timeout = 0');
    const [lock] = await transaction.query<{ held: boolean }>('SELECT pg_try_advisory_xact_lock($1) AS held', [
      lockKey,
    ]);
    if (!lock?.held) return { outcome: 'busy', hours: 0, more: false };

    const notes = await transaction.query<Note>(readNotesSql, [maxNotes, maxHours]);
    if (notes.length === 0) return { outcome: 'idle', hours: 0, more: false };
    const [next] = await transaction.query<{ pass: number }>("SELECT nextval('usage_pass') AS pass");

    const hours = notes.map(({ tenant_id, hour_seconds }) => ({ tenantId: tenant_id, hourSeconds: hour_seconds }));
    await ports.warehouse.command({ ...countHours(hours, next!.pass), timeoutMs });
    await ports.warehouse.command({ ...sumDays(hours, next!.pass), timeoutMs });

    await noteChanges(transaction, hours, next!.pass);
    // They come oldest first.
    longestWaitSeconds = notes[0]!.waited_seconds;
    const sequences = notes.flatMap(({ sequences }) => sequences);
    await transaction.query('DELETE FROM usage_notes WHERE sequence = ANY($1::bigint[])', [sequences]);
    return { outcome: 'counted', hours: hours.length, more: hours.length >= maxHours || sequences.length >= maxNotes };
  });
  if (outcome.outcome === 'counted') {
    delaySeconds.observe(longestWaitSeconds + (performance.now() - startedAtMs) / 1_000);
  }
  return outcome;
}

/** Whether anything waits to be counted: one look at an index. */
export async function hasNotes(database: Pick<Database, 'query'>): Promise<boolean> {
  return (await database.query('SELECT 1 FROM usage_notes ORDER BY sequence LIMIT 1')).length > 0;
}

interface Note {
  readonly tenant_id: string;
  readonly hour_seconds: number;
  readonly sequences: string[];
  /** Of its oldest note, when the pass began. */
  readonly waited_seconds: number;
}

const readNotesSql = `
  SELECT tenant_id, extract(epoch FROM hour)::bigint AS hour_seconds, array_agg(sequence::text) AS sequences,
    greatest(0, extract(epoch FROM now() - min(noted_at)))::float8 AS waited_seconds
  FROM (SELECT sequence, tenant_id, hour, noted_at FROM usage_notes ORDER BY sequence LIMIT $1) AS oldest
  GROUP BY tenant_id, hour
  ORDER BY min(sequence)
  LIMIT $2`;

/** The touched hours travel beside a statement, as a table: no list of keys is too long for it. */
function touched(hours: readonly TouchedHour[]): ExternalTable {
  return {
    name: 'touched',
    // Not a DateTime: of those, ClickHouse reads short numbers as something else.
    structure: 'tenant_id UUID, hour_seconds UInt32',
    rows: hours.map(({ tenantId, hourSeconds }) => [tenantId, hourSeconds]),
  };
}

/** The first two conditions let ClickHouse use the sorting key, each alone. */
const touchedOnly = (column: string, ofSeconds: string) => `tenant_id IN (SELECT tenant_id FROM touched)
      AND ${column} IN (SELECT ${ofSeconds} FROM touched)
      AND (tenant_id, ${column}) IN (SELECT tenant_id, ${ofSeconds} FROM touched)`;

/**
 * Step 4. The facts are read once for all dimensions. The second half gives an hour that has no trace any more its empty lists.
 * `pick` is read by position, because under FINAL a subcolumn by name reads rows that are not merged.
 */
export function countHours(hours: readonly TouchedHour[], pass: number): Command {
  return {
    name: 'count-usage-hours',
    sql: `INSERT INTO usage_hourly (tenant_id, dimension, hour, ids, traces, pass)
SELECT tenant_id, entry.1, hour, entry.2.1, entry.2.2, {pass:UInt64}
FROM (
  SELECT tenant_id, hour, sumMap(workspaces, ones) AS by_workspace, sumMap(projects, ones) AS by_project,
    sumMap(users, ones) AS by_user, sumMap(api_keys, ones) AS by_key
  FROM (
    SELECT tenant_id, hour, [tenant_id] AS workspaces, [pick.3] AS projects, [pick.4] AS users, [pick.5] AS api_keys,
      [toUInt64(1)] AS ones
    FROM traces FINAL
    WHERE ${touchedOnly('hour', "toDateTime(hour_seconds, 'UTC')")}
    UNION ALL
    SELECT tenant_id, toDateTime(hour_seconds, 'UTC'), [], [], [], [], [] FROM touched
  )
  GROUP BY tenant_id, hour
)
ARRAY JOIN [('workspace', by_workspace), ('project', by_project), ('user', by_user), ('api_key', by_key)] AS entry`,
    params: { pass },
    external: touched(hours),
    profile: 'recount',
  };
}

/** Step 5. */
export function sumDays(hours: readonly TouchedHour[], pass: number): Command {
  return {
    name: 'sum-usage-days',
    sql: `INSERT INTO usage_daily (tenant_id, dimension, day, ids, traces, pass)
SELECT tenant_id, dimension, day, counted.1, counted.2, {pass:UInt64}
FROM (
  SELECT tenant_id, dimension, toDate(hour) AS day, sumMap(ids, traces) AS counted
  FROM usage_hourly FINAL
  WHERE ${touchedOnly('toDate(hour)', "toDate(toDateTime(hour_seconds, 'UTC'))")}
  GROUP BY tenant_id, dimension, day
)`,
    params: { pass },
    external: touched(hours),
    profile: 'recount',
  };
}
