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
 *   4. A count of an earlier pass that outlived its process or its transaction is ended on the server: a row of it that
 *      came after step 5 had looked for rows to set to zero would stay.
 *   5. The count: new rows for what there is, zero rows for what there was and no longer is. Died before or within: the
 *      notes are still there. Rows of a part of the hours are right already and will be counted again.
 *   6. Exactly the notes that were read are deleted, by their numbers; commit. Died before: the hours are counted again.
 */
import { endInserts } from '../../infra/clickhouse/end-inserts.ts';
import type { Command, Warehouse } from '../../infra/clickhouse/warehouse.ts';
import type { TouchedHour } from '../../infra/event-log/event-log.ts';
import type { Database } from '../../infra/postgres/pool.ts';
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
const countName = 'usage-roll-up';

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

    // Step 4. Whoever holds the lock is the only one who may be counting.
    await endInserts(ports.warehouse, 'name', countName);
    const hours = notes.map(({ tenant_id, hour_seconds }) => ({ tenantId: tenant_id, hourSeconds: hour_seconds }));
    await ports.warehouse.command({ ...countHours(hours, next!.pass), timeoutMs });

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

/**
 * Step 5. The touched hours travel beside the statement, as a table: no list of keys is too long for it.
 * `pick` is read by position, because under FINAL a subcolumn by name reads rows that are not merged.
 */
export function countHours(hours: readonly TouchedHour[], pass: number): Command {
  const touched = `tenant_id IN (SELECT tenant_id FROM touched) AND hour IN (SELECT toDateTime(hour_seconds, 'UTC') FROM touched)
      AND (tenant_id, hour) IN (SELECT tenant_id, toDateTime(hour_seconds, 'UTC') FROM touched)`;
  return {
    name: countName,
    sql: `INSERT INTO usage_hourly (tenant_id, dimension, hour, id, traces, pass)
SELECT tenant_id, dimension, hour, id, sum(counted), {pass:UInt64}
FROM (
  SELECT tenant_id, entry.1 AS dimension, hour, entry.2 AS id, toUInt64(1) AS counted
  FROM traces FINAL
  ARRAY JOIN [('workspace', tenant_id), ('project', pick.3), ('user', pick.4), ('api_key', pick.5)] AS entry
  WHERE ${touched}
  UNION ALL
  SELECT tenant_id, toString(dimension), hour, id, toUInt64(0)
  FROM usage_hourly FINAL
  WHERE dimension IN ('workspace', 'project', 'user', 'api_key') AND ${touched}
)
GROUP BY tenant_id, dimension, hour, id`,
    params: { pass },
    external: {
      name: 'touched',
      // Not a DateTime: of those, ClickHouse reads short numbers as something else.
      structure: 'tenant_id UUID, hour_seconds UInt32',
      rows: hours.map(({ tenantId, hourSeconds }) => [tenantId, hourSeconds]),
    },
    profile: 'recount',
  };
}
