/**
 * Fires crons that are due, by the clock of Postgres.
 *
 * Invariant: a time of a schedule makes at most one run, and a time that comes while any process is up makes exactly one, unless what
 * it needs is gone or its thread turns it away. One transaction
 *
 *   1. locks the cron that is due the longest and that no other process holds (SKIP LOCKED);
 *   2. finds the last of its times up to now: earlier ones passed while nothing was up, and are not made up for;
 *   3. notes that time, once (`cron_firings`): it is known for a day, whatever moves the cron back;
 *   4. makes the run;
 *   5. moves the cron to its next time, or to none.
 *
 * A crash at any step leaves the cron as it was, due still. Where the run is refused for good (thread busy, assistant gone), steps 1
 * to 5 are done again without 4; where a store fails, it stays due.
 */
import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Database, Sql } from '../../../infra/postgres/database.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import { type ReadClock, readDatabaseClock } from '../due-clock.ts';
import { type Cron, cronColumns } from './cron.ts';
import { readSchedule } from './schedule.ts';

export interface FiringPorts {
  readonly database: Database;
  readonly deploymentId: string;
  /** Makes the run of a cron that fires, through `tx`. The result is its id. */
  readonly makeRun: (tx: Sql, cron: Cron) => Promise<string>;
  readonly logger: Logger;
  /** Default: the clock of Postgres. */
  readonly now?: ReadClock;
}

const keptForMs = 24 * 3_600_000;

/** Fires every cron that is due. The result is how many did; those that failed are due still. */
export async function fireCrons(ports: FiringPorts): Promise<number> {
  const { database, logger } = ports;
  const failed: string[] = [];
  for (let fired = 0; ; ) {
    let cron: Cron | undefined;
    try {
      await database.transaction(async (tx) => {
        const nowMs = await nowOf(ports, tx);
        cron = await lockDue(tx, ports, nowMs, 'AND cron_id <> ALL ($3::uuid[])', failed);
        if (cron !== undefined) await fire(tx, ports, nowMs, cron, ports.makeRun);
      });
      if (cron === undefined) return fired;
      fired += 1;
    } catch (err) {
      if (cron === undefined) throw err;
      const { cron_id: cronId } = cron as Cron;
      failed.push(cronId);
      if (isRunlakeError(err) && err.class === 'caller') {
        logger.warn({ err, cronId }, 'a cron made no run: it is left out this once');
        await leaveOut(ports, cronId).catch((reason) => logger.error({ err: reason, cronId }, 'a cron cannot go on'));
      } else logger.error({ err, cronId }, 'a cron could not fire: it is tried again');
    }
  }
}

/** Lets the time that a cron is due at pass. */
async function leaveOut(ports: FiringPorts, cronId: string): Promise<void> {
  await ports.database.transaction(async (tx) => {
    const nowMs = await nowOf(ports, tx);
    const cron = await lockDue(tx, ports, nowMs, 'AND cron_id = $3', cronId);
    if (cron !== undefined) await fire(tx, ports, nowMs, cron, async () => null);
  });
}

/** How long until the next cron is due, in milliseconds; undefined where none is. */
export async function msToNextCron(ports: FiringPorts): Promise<number | undefined> {
  const { database, deploymentId } = ports;
  const [row] = await database.query<{ next: string | null }>(
    'SELECT min(next_run_date) AS next FROM agents.crons WHERE deployment_id = $1 AND enabled',
    [deploymentId],
  );
  return row?.next ? Math.max(0, Date.parse(row.next) - (await nowOf(ports, database))) : undefined;
}

function nowOf({ now = readDatabaseClock }: FiringPorts, sql: Sql): Promise<number> {
  return now(sql);
}

/** The cron that is due the longest of those that `condition` on `$3` leaves. */
async function lockDue(
  tx: Sql,
  { deploymentId }: FiringPorts,
  nowMs: number,
  condition: string,
  value: string | readonly string[],
): Promise<Cron | undefined> {
  const [cron] = await tx.query<Cron>(
    `SELECT ${cronColumns} FROM agents.crons
     WHERE deployment_id = $1 AND enabled AND next_run_date <= $2 ${condition}
     ORDER BY next_run_date LIMIT 1 FOR UPDATE SKIP LOCKED`,
    [deploymentId, new Date(nowMs).toISOString(), value],
  );
  return cron;
}

async function fire(
  tx: Sql,
  { deploymentId }: FiringPorts,
  nowMs: number,
  cron: Cron,
  makeRun: (tx: Sql, cron: Cron) => Promise<string | null>,
): Promise<void> {
  const dueMs = Date.parse(cron.next_run_date as string);
  const endMs = cron.end_time === null ? Number.POSITIVE_INFINITY : Date.parse(cron.end_time);
  const schedule = readSchedule(cron.schedule, cron.timezone, dueMs - 1);
  const firesMs = schedule.latest(dueMs, Math.min(nowMs, endMs));
  const firing = [deploymentId, cron.cron_id, new Date(firesMs).toISOString()];
  const isFirst = await tx.execute(
    'INSERT INTO agents.cron_firings (deployment_id, cron_id, due_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING',
    firing,
  );
  if (isFirst === 1) {
    const runId = await makeRun(tx, cron);
    await tx.execute(
      'UPDATE agents.cron_firings SET run_id = $4 WHERE deployment_id = $1 AND cron_id = $2 AND due_at = $3',
      [...firing, runId],
    );
  }
  const nextMs = schedule.next(Math.max(firesMs, nowMs));
  await tx.execute('UPDATE agents.crons SET next_run_date = $3 WHERE deployment_id = $1 AND cron_id = $2', [
    deploymentId,
    cron.cron_id,
    nextMs === undefined || nextMs > endMs ? null : new Date(nextMs).toISOString(),
  ]);
  await tx.execute('DELETE FROM agents.cron_firings WHERE deployment_id = $1 AND cron_id = $2 AND due_at < $3', [
    deploymentId,
    cron.cron_id,
    new Date(firesMs - keptForMs).toISOString(),
  ]);
}
