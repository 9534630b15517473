/**
 * Starts bulk exports, queues their export runs and ends the exports. `spawn-due-exports.ts` creates those of schedules.
 *
 * A job calls {@link coordinateExport} for a new export, a worker calls {@link advanceExport} when an export run has
 * ended, and {@link sweepExports} periodically does the work of both for all exports. All three functions are
 * idempotent, and any number of processes may call them at the same time.
 *
 * Invariants:
 *   - At most `exportsPerWorkspace` exports of a workspace are RUNNING.
 *   - The export runs of an export are created exactly once, in the transaction that sets the export to RUNNING.
 */
import { randomUUID } from 'node:crypto';
import { poll } from '../../infra/timeouts/poll.ts';
import { topics } from '../../schemas/topics.ts';
import { type ExportDeps, type ExportWorkerDeps, readClock } from './export-deps.ts';
import { cleanUpRun } from './export-run.ts';
import { completeExport, forEachConcurrently } from './manifest.ts';
import { type ExportRecord, exportColumns, isProjectDeleted } from './record.ts';
import { spawnDueExports } from './spawn-due-exports.ts';
import { enqueueRun, finishExport, listPreviousStates } from './states.ts';

/** Sweeps do not clean up export runs that ended earlier than this: their bucket probably no longer exists. */
const maxCleanupAgeHours = 24;
const maxConcurrentCleanups = 20;
/** Maximum number of manifests that are written concurrently. It is limited because each manifest is held in memory. */
const maxConcurrentManifests = 8;
/** Maximum number of exports that one sweep ends, and of export runs that it cleans up. */
const maxBucketsPerSweep = 200;
/** Time after which a sweep starts no further work on a bucket, and after which checking the files of an export stops. */
const defaultBucketDeadlineMs = 15_000;

/**
 * Sweeps all exports, periodically and after a start. The sweep determines the due work from the rows alone, so it
 * rebuilds a lost queue and continues work that a crash interrupted.
 *
 *   1. Exports and schedules of deleted workspaces become CANCELLED, because no caller can cancel them any more.
 *   2. Exports that have exceeded their timeout become TIMEDOUT, and so do their unfinished export runs.
 *   3. Schedules spawn their due exports.
 *   4. CREATED exports are started, in each workspace up to its limit.
 *   5. Export runs that a worker can claim are queued.
 *   6. Work on buckets: RUNNING exports without unfinished runs get their manifest and end; unrecorded objects of
 *      ended runs are removed.
 *
 * The sweep is not a job, because it must work after the queues are lost. If one step fails, the others still run.
 *
 * Buckets may be slow or hang. Therefore work on buckets comes last, for a random selection, with limited concurrency,
 * and not after a deadline: a slow bucket neither delays the next sweep for long nor starves another bucket.
 *
 * @param signal If aborted, no further bucket is processed, and writing manifests stops.
 */
export async function sweepExports(
  deps: ExportWorkerDeps,
  signal?: AbortSignal,
  bucketDeadlineMs = defaultBucketDeadlineMs,
): Promise<void> {
  const runStep = (name: string, step: Promise<void>) =>
    step.catch((err) => deps.logger.warn({ err, step: name }, 'a step of the export sweep failed'));
  await runStep('orphans', cancelOrphans(deps));
  await runStep('overdue exports', timeOutExports(deps));
  await runStep('schedules', spawnDueExports(deps));
  await runStep('waiting exports', startExports(deps));
  await runStep('runs', queueDueRuns(deps));
  const deadline = AbortSignal.timeout(bucketDeadlineMs);
  await Promise.all([
    runStep('manifests', endExports(deps, signal, deadline)),
    runStep('tidying', cleanUpRuns(deps, signal, deadline)),
  ]);
}

async function cancelOrphans(deps: ExportWorkerDeps): Promise<void> {
  const orphans = await deps.database.query<{ id: string }>(
    `SELECT e.id FROM bulk_exports AS e JOIN workspaces AS w ON w.id = e.workspace_id
     WHERE e.finished_at IS NULL AND w.deleted_at IS NOT NULL`,
  );
  for (const { id } of orphans) await finishExport(deps, id, { to: 'CANCELLED', reason: 'Its workspace was deleted.' });
}

async function timeOutExports(deps: ExportWorkerDeps): Promise<void> {
  const { database, limits } = deps;
  const overdue = await database.query<{ id: string }>(
    `SELECT id FROM bulk_exports WHERE status = 'RUNNING' AND interval_hours IS NULL AND started_at <= $1`,
    [new Date((await readClock(deps)).getTime() - limits.exportTimeoutMs).toISOString()],
  );
  const reason = `It took longer than ${limits.exportTimeoutMs} ms (RUNLAKE_EXPORT_TIMEOUT_MS). Export a smaller range, or fewer fields.`;
  for (const { id } of overdue) await finishExport(deps, id, { to: 'TIMEDOUT', reason });
}

async function startExports(deps: ExportWorkerDeps): Promise<void> {
  const waiting = await deps.database.query<{ id: string }>(
    `SELECT id FROM (
       SELECT id, row_number() OVER (PARTITION BY workspace_id ORDER BY created_at, id) AS ordinal FROM bulk_exports
       WHERE status = 'CREATED') AS waiting
     WHERE ordinal <= $1`,
    [deps.limits.exportsPerWorkspace],
  );
  for (const { id } of waiting) {
    await coordinateExport(deps, id, undefined, 0).catch((err) =>
      deps.logger.warn({ err, exportId: id }, 'cannot start a bulk export'),
    );
  }
}

async function endExports(
  deps: ExportWorkerDeps,
  signal: AbortSignal | undefined,
  deadline: AbortSignal,
): Promise<void> {
  const ended = await deps.database.query<{ id: string }>(
    `SELECT id FROM bulk_exports AS e WHERE status = 'RUNNING' AND interval_hours IS NULL
       AND NOT EXISTS (SELECT FROM bulk_export_runs WHERE bulk_export_id = e.id AND finished_at IS NULL)
     ORDER BY random() LIMIT $1`,
    [maxBucketsPerSweep],
  );
  const end = ({ id }: { readonly id: string }) =>
    advanceExport(deps, id, signal, deadline).catch((err) =>
      deps.logger.warn({ err, exportId: id }, 'cannot end a bulk export'),
    );
  await forEachConcurrently(maxConcurrentManifests, ended, end, combineSignals(deadline, signal));
}

async function cleanUpRuns(
  deps: ExportWorkerDeps,
  signal: AbortSignal | undefined,
  deadline: AbortSignal,
): Promise<void> {
  const ended = await deps.database.query<{ id: string }>(
    `SELECT id FROM bulk_export_runs
     WHERE finished_at IS NOT NULL AND pending_upload IS NOT NULL AND (lease_until IS NULL OR lease_until <= clock_timestamp())
       AND finished_at > $1
     ORDER BY random() LIMIT $2`,
    [new Date((await readClock(deps)).getTime() - maxCleanupAgeHours * 3_600_000).toISOString(), maxBucketsPerSweep],
  );
  await forEachConcurrently(
    maxConcurrentCleanups,
    ended,
    (run) => cleanUpRun(deps, run),
    combineSignals(deadline, signal),
  );
}

const combineSignals = (deadline: AbortSignal, signal: AbortSignal | undefined) =>
  signal === undefined ? deadline : AbortSignal.any([deadline, signal]);

const pollIntervalMs = 100;
/** Maximum time that one call waits until the sink has stored the events of the log. Later calls try again. */
const defaultLogTimeoutMs = 10_000;

/**
 * Starts an export when its preconditions are met.
 *
 *   1. All events that the log accepted before the export was created must be stored. If this does not happen within
 *      the timeout, the sweep tries again.
 *   2. The workspace must be below its limit, which is checked under a lock on the workspace row. Otherwise the export
 *      waits until another export of the workspace ends.
 *   3. One export run is created for each UTC day of the range, and the export becomes RUNNING.
 *   4. The first export runs are queued.
 *
 * If the export is already RUNNING, the function executes only step 4, and ends the export if no unfinished export run
 * is left.
 *
 * @throws errors of the log, the database and the object store; the sweep then calls this function again.
 */
export async function coordinateExport(
  deps: ExportWorkerDeps,
  exportId: string,
  signal?: AbortSignal,
  logTimeoutMs = defaultLogTimeoutMs,
): Promise<void> {
  const [of] = await deps.database.query<ExportRecord>(
    `SELECT ${exportColumns} FROM bulk_exports AS e WHERE id = $1 AND interval_hours IS NULL`,
    [exportId],
  );
  if (of === undefined) return;
  if (of.status === 'CREATED') {
    if (!(await isLogStored(deps, of, signal, logTimeoutMs))) return;
    if (await isProjectDeleted(deps.database, of)) {
      await finishExport(deps, exportId, { to: 'FAILED', reason: 'Its project was deleted.' });
      return;
    }
    if (!(await startExport(deps, of))) return;
  } else if (of.status !== 'RUNNING') return;
  await queueDueRuns(deps, { exportId });
  if (of.status === 'RUNNING') await advanceExport(deps, exportId, signal);
}

async function isLogStored(
  { log }: Pick<ExportWorkerDeps, 'log'>,
  { logPosition }: ExportRecord,
  signal: AbortSignal | undefined,
  logTimeoutMs: number,
): Promise<boolean> {
  const endMs = performance.now() + logTimeoutMs;
  for (const [name, position] of Object.entries(logPosition ?? {})) {
    const topic = topics.find((each) => each.name === name);
    if (topic === undefined) continue;
    const timeoutMs = endMs - performance.now();
    const isStored = () => log.isStored(topic, position);
    if (!(await poll(isStored, { intervalMs: pollIntervalMs, timeoutMs, signal }))) return false;
  }
  return true;
}

async function startExport(deps: ExportDeps, of: ExportRecord): Promise<boolean> {
  const windows = splitIntoDays(of.startTime, of.endTime as string);
  const { database, limits } = deps;
  const at = (await readClock(deps)).toISOString();
  return database.transaction(async (tx) => {
    // Every start of an export locks this row, so that concurrent starts in a workspace are serialised.
    await tx.query('SELECT FROM workspaces WHERE id = $1 FOR NO KEY UPDATE', [of.workspaceId]);
    const [{ running } = { running: 0 }] = await tx.query<{ running: number }>(
      `SELECT count(*) AS running FROM bulk_exports
       WHERE workspace_id = $1 AND status = 'RUNNING' AND interval_hours IS NULL`,
      [of.workspaceId],
    );
    if (running >= limits.exportsPerWorkspace) {
      const reason = `Waiting until fewer than ${limits.exportsPerWorkspace} exports of the workspace are running.`;
      await tx.execute(
        `UPDATE bulk_exports SET status_reason = $2, updated_at = $3
         WHERE id = $1 AND status = 'CREATED' AND status_reason IS DISTINCT FROM $2`,
        [of.id, reason, at],
      );
      return false;
    }
    const started = await tx.execute(
      `UPDATE bulk_exports SET status = 'RUNNING', status_reason = NULL, started_at = $2, updated_at = $2
       WHERE id = $1 AND status = ANY ($3)`,
      [of.id, at, listPreviousStates('export', 'RUNNING')],
    );
    if (started === 0) return false;
    await tx.execute(
      `INSERT INTO bulk_export_runs (id, bulk_export_id, workspace_id, start_time, end_time, status, next_attempt_at,
         created_at, updated_at)
       SELECT id, $1, $2, start_time, end_time, 'CREATED', $3, $3, $3
       FROM unnest($4::uuid[], $5::timestamptz[], $6::timestamptz[]) AS window_of_day (id, start_time, end_time)`,
      [
        of.id,
        of.workspaceId,
        at,
        windows.map(() => randomUUID()),
        windows.map(({ start }) => start),
        windows.map(({ end }) => end),
      ],
    );
    return true;
  });
}

/** The intersection of one UTC day with a range, as a half-open range. Times are ISO 8601 with microseconds. */
interface DayWindow {
  readonly start: string;
  readonly end: string;
}

const dayMs = 86_400_000;

/**
 * Splits a half-open range into UTC days without gaps or overlaps; the first and the last day are limited to the range.
 * UTC has no daylight saving time, so each day has 24 hours. Times are ISO 8601 in UTC and keep their microseconds.
 */
export function splitIntoDays(start: string, end: string): DayWindow[] {
  const windows: DayWindow[] = [];
  let from = start;
  for (let dayEnd = (Math.floor(Date.parse(start) / dayMs) + 1) * dayMs; from !== end; dayEnd += dayMs) {
    const midnight = new Date(dayEnd).toISOString().replace('.000Z', '.000000Z');
    const until = midnight < end ? midnight : end;
    windows.push({ start: from, end: until });
    from = until;
  }
  return windows;
}

/**
 * Maximum number of export runs to queue after one export run has ended. It is two because two export runs may end at
 * the same time. If more than two end at once, the sweep queues the remaining runs.
 */
const maxRunsToQueue = 2;

/**
 * Advances an export after one of its export runs has ended: queues the next runs or, if no run is left, writes the
 * manifest and marks the export COMPLETED. After the export has ended, the next interval of its schedule is spawned if
 * it is due, because this interval may have been waiting for the export.
 *
 * @param signal If aborted, checking the files and writing the manifest stop.
 * @param deadline If aborted, checking the files stops.
 * @throws errors of the database, transient errors of the object store, and the reasons of the signals. The sweep then
 *   calls this function again.
 */
export async function advanceExport(
  deps: ExportWorkerDeps,
  exportId: string,
  signal?: AbortSignal,
  deadline = AbortSignal.timeout(defaultBucketDeadlineMs),
): Promise<void> {
  const { database, limits } = deps;
  const [at] = await database.query<{ open: number; completed: number }>(
    `SELECT count(*) FILTER (WHERE finished_at IS NULL) AS open, count(*) FILTER (WHERE status = 'COMPLETED') AS completed
     FROM bulk_export_runs WHERE bulk_export_id = $1`,
    [exportId],
  );
  if (at === undefined) return;
  if (at.open > 0) {
    // If fewer export runs than the limit are unfinished, all of them are already queued.
    if (at.open >= limits.exportRunsAtOnce) await queueDueRuns(deps, { exportId, newest: maxRunsToQueue });
    return;
  }
  const [of] = await database.query<ExportRecord>(
    `SELECT ${exportColumns} FROM bulk_exports AS e WHERE id = $1 AND status = 'RUNNING' AND interval_hours IS NULL`,
    [exportId],
  );
  if (of === undefined || at.completed === 0) return;
  await completeExport(deps, of, { signal, checking: combineSignals(deadline, signal) });
  if (of.sourceExportId !== null) await spawnDueExports(deps, of.sourceExportId);
}

/**
 * Queues the export runs that a worker can claim now: the first unfinished runs of each RUNNING export, up to the limit
 * of concurrent runs, except for runs that have a lease or wait for a retry.
 *
 * @param choice.newest If given, only the last `newest` runs within the limit are queued, because only these runs have
 *   just become claimable.
 */
async function queueDueRuns(
  deps: ExportDeps,
  choice: { readonly exportId?: string; readonly newest?: number } = {},
): Promise<void> {
  const { exportRunsAtOnce } = deps.limits;
  const at = (await readClock(deps)).toISOString();
  const due = await deps.database.query<{ id: string; fence: number }>(
    `SELECT r.id, r.fence
     FROM bulk_exports AS e CROSS JOIN LATERAL (
       SELECT *, row_number() OVER (ORDER BY start_time) AS ordinal FROM bulk_export_runs
       WHERE bulk_export_id = e.id AND finished_at IS NULL ORDER BY start_time LIMIT $1
     ) AS r
     WHERE e.status = 'RUNNING' AND e.interval_hours IS NULL AND ($2::uuid IS NULL OR e.id = $2) AND r.ordinal > $1 - $3::int
       AND (r.lease_until IS NULL OR r.lease_until <= clock_timestamp())
       AND (r.attempt_started_at IS NOT NULL OR r.next_attempt_at <= $4)
     ORDER BY e.created_at, r.start_time`,
    [exportRunsAtOnce, choice.exportId ?? null, choice.newest ?? exportRunsAtOnce, at],
  );
  for (const run of due) await enqueueRun(deps, run);
}
