/**
 * Looks all exports over, from time to time and after a start. What the queues should hold follows from the rows alone: so a
 * queue that was lost is rebuilt here, and whatever a crash left between two steps goes on.
 *
 *   1. Exports and schedules of workspaces that were deleted are CANCELLED: nobody could do that any more.
 *   2. Exports past their time are TIMEDOUT, with their runs.
 *   3. Schedules spawn what is due.
 *   4. CREATED exports are started that can be, of each workspace as many as it may run.
 *   5. Runs are queued that a worker could take up.
 *   6. In buckets: RUNNING exports that have no run left get their manifest and end; what runs that are over have left is removed.
 *
 * Nothing of this comes out of a queue: it is what rebuilds them. Any number of processes may sweep at the same time. Jobs that
 * are in the queues already are not added again, by their ids. A fault in one part does not keep the others from being done.
 *
 * Buckets may be slow, or hang until the limits of their client end that. So they come last; a sweep turns to a part of them, some
 * at a time, picked anew each time, and begins with none after a while: none holds up the next sweep for long, nor another bucket
 * for good.
 */
import { advanceExport } from './advance-export.ts';
import { coordinateExport } from './coordinate-export.ts';
import { eachAtMost } from './each-at-most.ts';
import { enqueueRun } from './enqueue.ts';
import type { WorkPorts } from './export-ports.ts';
import { finishExport } from './finish-export.ts';
import { dueRuns } from './runs/due-runs.ts';
import { tidyRun } from './runs/tidy-run.ts';
import { spawnDue } from './schedules.ts';

/** Behind it, a bucket that cannot be asked will not be any more. */
const tidyForHours = 24;
const tidiedAtOnce = 20;
/** Each is in memory whole. */
const manifestsAtOnce = 8;
/** Most that one sweep turns to, of each kind. */
const bucketsOfSweep = 200;
/** No bucket is turned to later in a sweep. */
const bucketsWithinMs = 15_000;

/** @param signal Once it is aborted no further bucket is turned to, and no manifest waited for. */
export async function sweepExports(ports: WorkPorts, signal?: AbortSignal): Promise<void> {
  const doPart = (name: string, part: Promise<void>) =>
    part.catch((err) => ports.logger.warn({ err, part: name }, 'a part of the sweep of exports failed'));
  await doPart('orphans', cancelOrphans(ports));
  await doPart('late exports', endLate(ports));
  await doPart('schedules', spawnDue(ports));
  await doPart('exports that wait', startExports(ports));
  await doPart('runs', queueRuns(ports));
  await Promise.all([doPart('manifests', endExports(ports, signal)), doPart('tidying', tidyRuns(ports, signal))]);
}

async function cancelOrphans(ports: WorkPorts): Promise<void> {
  const orphans = await ports.database.query<{ id: string }>(
    `SELECT e.id FROM bulk_exports AS e JOIN workspaces AS w ON w.id = e.workspace_id
     WHERE e.finished_at IS NULL AND w.deleted_at IS NOT NULL`,
  );
  for (const { id } of orphans)
    await finishExport(ports, id, { to: 'CANCELLED', reason: 'Its workspace was deleted.' });
}

async function endLate(ports: WorkPorts): Promise<void> {
  const { database, limits, now } = ports;
  const startedBefore = new Date(now().getTime() - limits.exportTimeoutMs).toISOString();
  const late = await database.query<{ id: string }>(
    `SELECT id FROM bulk_exports WHERE status = 'RUNNING' AND interval_hours IS NULL AND started_at <= $1`,
    [startedBefore],
  );
  const reason = `It took longer than ${limits.exportTimeoutMs} ms (RUNLAKE_EXPORT_TIMEOUT_MS). Export a smaller range, or fewer fields.`;
  for (const { id } of late) await finishExport(ports, id, { to: 'TIMEDOUT', reason });
}

async function startExports(ports: WorkPorts): Promise<void> {
  const waiting = await ports.database.query<{ id: string }>(
    `SELECT id FROM (
       SELECT id, row_number() OVER (PARTITION BY workspace_id ORDER BY created_at, id) AS place FROM bulk_exports
       WHERE status = 'CREATED') AS waiting
     WHERE place <= $1`,
    [ports.limits.exportsPerWorkspace],
  );
  for (const { id } of waiting) {
    await coordinateExport(ports, id, undefined, 0).catch((err) =>
      ports.logger.warn({ err, exportId: id }, 'a bulk export could not be started'),
    );
  }
}

async function queueRuns(ports: WorkPorts): Promise<void> {
  for (const run of await dueRuns(ports.database, ports.limits, ports.now())) await enqueueRun(ports, run);
}

async function endExports(ports: WorkPorts, signal?: AbortSignal): Promise<void> {
  const ended = await ports.database.query<{ id: string }>(
    `SELECT id FROM bulk_exports AS e WHERE status = 'RUNNING' AND interval_hours IS NULL
       AND NOT EXISTS (SELECT FROM bulk_export_runs WHERE bulk_export_id = e.id AND finished_at IS NULL)
     ORDER BY random() LIMIT $1`,
    [bucketsOfSweep],
  );
  const end = ({ id }: { readonly id: string }) =>
    advanceExport(ports, id, signal).catch((err) =>
      ports.logger.warn({ err, exportId: id }, 'a bulk export could not be ended'),
    );
  await eachAtMost(manifestsAtOnce, ended, end, untilLate(signal));
}

async function tidyRuns(ports: WorkPorts, signal?: AbortSignal): Promise<void> {
  const untidy = await ports.database.query<{ id: string }>(
    `SELECT id FROM bulk_export_runs
     WHERE finished_at IS NOT NULL AND pending_upload IS NOT NULL AND (lease_until IS NULL OR lease_until <= clock_timestamp())
       AND finished_at > $1
     ORDER BY random() LIMIT $2`,
    [new Date(ports.now().getTime() - tidyForHours * 3_600_000).toISOString(), bucketsOfSweep],
  );
  await eachAtMost(tidiedAtOnce, untidy, (run) => tidyRun(ports, run), untilLate(signal));
}

function untilLate(signal?: AbortSignal): AbortSignal {
  const late = AbortSignal.timeout(bucketsWithinMs);
  return signal === undefined ? late : AbortSignal.any([late, signal]);
}
