import { randomBytes } from 'node:crypto';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { LRUCache } from 'lru-cache';
import { createProcessFolder } from '../../infra/embedded/process-identity.ts';
import { isRunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import { toWorkFileError } from '../../infra/errors/work-file-error.ts';
import { runForTenant } from '../../infra/fairness/tenant-context.ts';
import type { Jobs } from '../../infra/jobs/jobs.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import { counter, scrapedGauge } from '../../infra/telemetry/metrics.ts';
import { pause } from '../../infra/timeouts/backoff.ts';

import { type AttemptOutcome, Checkpoint, type ClaimedExportRun, claimRun, endAttempt } from './checkpoint.ts';
import { type ExportWorkerDeps, readClock } from './export-deps.ts';
import { cleanUpRun, exportRun } from './export-run.ts';
import { LiveAttempts } from './live-attempts.ts';
import { buildPartKey, buildScope, isProjectDeleted, toExportFormat } from './record.ts';
import { advanceExport, coordinateExport, sweepExports } from './scheduler.ts';

const endedAttempts = counter(
  'runlake_export_attempts_total',
  'Attempts at bulk export runs that ended in this process, by outcome: completed, retried, failed, over (cancelled, timed out, or claimed by another worker), released (this process stops).',
  ['end'],
);

const unfinishedExports = scrapedGauge(
  'runlake_export_unfinished',
  'Unfinished bulk exports by status, without schedules.',
  ['status'],
);

interface ExportWorkers {
  /**
   * Releases the export runs and resolves when no work is left. After this call jobs are still taken from the queue,
   * but they do nothing.
   */
  stop(): Promise<void>;
}

/**
 * Starts the bulk export workers of one process. They start exports, write the files of export runs, and sweep
 * periodically. Rows in Postgres limit the concurrency across all processes; `concurrency` limits it in this process.
 *
 * After a stop the process claims no more runs. Its running export runs are released at once without using up a retry,
 * so that another worker can claim them.
 *
 * @throws WORK_FILE_UNUSABLE if the work folder cannot be used.
 */
export async function startExportWorkers(
  deps: ExportWorkerDeps & { readonly jobs: Jobs; readonly leases: Sql },
  options: { readonly workFolder: string; readonly concurrency: number; readonly sweepMs: number },
): Promise<ExportWorkers> {
  const { database, jobs, leases, limits, logger } = deps;
  const folders = await openWorkFolders(options.workFolder);
  const attempts = new LiveAttempts(leases, limits, logger);
  const inFlight = new Set<Promise<void>>();
  const track = (work: Promise<void>) => {
    const tracked = work.finally(() => inFlight.delete(tracked));
    inFlight.add(tracked);
    return tracked;
  };
  jobs.work('coordinate-export', ({ export_id: exportId }, { signal }) =>
    attempts.stopping
      ? Promise.resolve()
      : coordinateExport(deps, exportId, AbortSignal.any([signal, attempts.stopped])).catch(ignoreStop(attempts)),
  );
  const fairAttempts = new FairAttempts({ ...deps, attempts, folders }, options.concurrency);
  jobs.work('export-run', () => track(fairAttempts.attemptNext()), { concurrency: fairAttempts.maxJobs });
  // The first sweep starts at once and continues exports that were interrupted by the end of the previous process.
  let nextSweep: NodeJS.Timeout | undefined;
  const sweep = async () => {
    await track(sweepExports(deps, attempts.stopped));
    if (!attempts.stopping) nextSweep = setTimeout(() => void sweep(), options.sweepMs);
  };
  void sweep();
  const hide = unfinishedExports.setReader(async () => {
    const counted = await database.query<{ status: string; value: number }>(
      `SELECT status, count(*) AS value FROM bulk_exports WHERE finished_at IS NULL AND interval_hours IS NULL GROUP BY status`,
    );
    return counted.map(({ status, value }) => ({ labels: { status }, value }));
  });
  return {
    stop: async () => {
      attempts.stop();
      clearTimeout(nextSweep);
      await Promise.allSettled(inFlight);
      hide();
      await folders.close();
    },
  };
}

const pollIntervalMs = 1_000;
/** Number of lost races for a run after which a job gives up. The sweep queues the runs that are still due. */
const maxLostRaces = 5;

/**
 * Chooses the next export run for this process, so that organisations share the workers fairly.
 *
 * Invariant: at most `concurrency` attempts run in this process, plus one attempt for an organisation that has no other
 * attempt in this process. Among the organisations with due runs, the organisation with the fewest leases across all
 * processes is next, and of its exports the one with the fewest leases.
 *
 *   1. A job only signals that some run is due. The run is chosen from the rows, among the first due runs of each
 *      export.
 *   2. The additional attempt prevents long export runs of one organisation from delaying the first export run of
 *      another organisation, because attempts are not interrupted.
 *   3. If all slots are in use, the job waits until an attempt ends. It also checks every second, because jobs of
 *      other organisations may be behind it in the queue.
 */
export class FairAttempts {
  readonly #deps: AttemptDeps;
  readonly #concurrency: number;
  /** Number of attempts in this process, by organisation. */
  readonly #running = new Map<string, number>();
  /** Sequence number of the last start, by organisation and by export. */
  readonly #lastStart = new LRUCache<string, number>({ max: maxRememberedStarts });
  #starts = 0;
  #total = 0;
  /** Aborted and replaced whenever an attempt ends. */
  #nextEnd = new AbortController();

  constructor(deps: AttemptDeps, concurrency: number) {
    this.#deps = deps;
    this.#concurrency = concurrency;
  }

  /** The concurrency that the job queue must have. */
  get maxJobs(): number {
    return this.#concurrency + 1;
  }

  /** Starts an attempt at one run, if a run is due. @throws errors of the database. */
  async attemptNext(): Promise<void> {
    const { attempts } = this.#deps;
    let lostRaces = 0;
    while (!attempts.stopping && lostRaces < maxLostRaces) {
      const due = await findNextRuns(this.#deps);
      if (due.length === 0) return;
      const chosen = this.#choose(due);
      if (chosen === undefined) {
        await pause(pollIntervalMs, this.#nextEnd.signal);
      } else if (await this.#attempt(chosen)) return;
      else lostRaces += 1;
    }
  }

  #choose(due: readonly NextRun[]): NextRun | undefined {
    if (this.#total > this.#concurrency) return undefined;
    const readLastStart = (id: string) => this.#lastStart.peek(id) ?? 0;
    return due
      .filter(({ organizationId }) => this.#total < this.#concurrency || !this.#running.has(organizationId))
      .toSorted(
        (a, b) =>
          a.leases - b.leases ||
          readLastStart(a.organizationId) - readLastStart(b.organizationId) ||
          a.exportLeases - b.exportLeases ||
          readLastStart(a.exportId) - readLastStart(b.exportId),
      )[0];
  }

  async #attempt({ id, exportId, organizationId }: NextRun): Promise<boolean> {
    this.#starts += 1;
    for (const started of [organizationId, exportId]) this.#lastStart.set(started, this.#starts);
    this.#total += 1;
    this.#running.set(organizationId, (this.#running.get(organizationId) ?? 0) + 1);
    try {
      return await runForTenant({ organizationId }, () => attemptRun(this.#deps, id));
    } finally {
      this.#total -= 1;
      const left = (this.#running.get(organizationId) ?? 1) - 1;
      if (left === 0) this.#running.delete(organizationId);
      else this.#running.set(organizationId, left);
      this.#nextEnd.abort();
      this.#nextEnd = new AbortController();
    }
  }
}

/** Maximum number of organisations and exports for which the last start is remembered. */
const maxRememberedStarts = 20_000;

interface NextRun {
  readonly id: string;
  readonly exportId: string;
  readonly organizationId: string;
  /** Number of export runs of the organisation that have a lease, across all processes. */
  readonly leases: number;
  /** As `leases`, of the export. */
  readonly exportLeases: number;
}

/**
 * Returns the first due export run of each export, those of older exports first. Uses the same condition as
 * `queueDueRuns` in `scheduler.ts`.
 */
async function findNextRuns(deps: AttemptDeps): Promise<NextRun[]> {
  return deps.database.query<NextRun>(
    `WITH leases AS (
       SELECT w.organization_id, r.bulk_export_id, count(*)::int AS held
       FROM bulk_export_runs AS r JOIN workspaces AS w ON w.id = r.workspace_id
       WHERE r.finished_at IS NULL AND r.lease_until > clock_timestamp() GROUP BY 1, 2
     )
     SELECT due.id, e.id AS "exportId", w.organization_id AS "organizationId",
       (SELECT coalesce(sum(held), 0)::int FROM leases WHERE organization_id = w.organization_id) AS leases,
       (SELECT coalesce(sum(held), 0)::int FROM leases WHERE bulk_export_id = e.id) AS "exportLeases"
     FROM bulk_exports AS e JOIN workspaces AS w ON w.id = e.workspace_id CROSS JOIN LATERAL (
       SELECT r.id FROM (
         SELECT * FROM bulk_export_runs
         WHERE bulk_export_id = e.id AND finished_at IS NULL ORDER BY start_time LIMIT $1
       ) AS r
       WHERE (r.lease_until IS NULL OR r.lease_until <= clock_timestamp())
         AND (r.attempt_started_at IS NOT NULL OR r.next_attempt_at <= $2)
       ORDER BY r.start_time LIMIT 1
     ) AS due
     WHERE e.status = 'RUNNING' AND e.interval_hours IS NULL
     ORDER BY e.created_at`,
    [deps.limits.exportRunsAtOnce, (await readClock(deps)).toISOString()],
  );
}

export interface AttemptDeps extends ExportWorkerDeps {
  readonly attempts: LiveAttempts;
  readonly folders: WorkFolders;
}

/**
 * Executes one attempt at an export run, from claiming its row to ending the attempt.
 *
 *   1. Claim the run (`checkpoint.ts`), or return if it is not due.
 *   2. Write its files (`export-run.ts`) in a separate folder. A signal aborts this work when the lease is lost, at
 *      the timeout and at shutdown (`live-attempts.ts`).
 *   3. If the run is not completed, record the outcome and whether a retry follows (`checkpoint.ts`).
 *   4. Remove the folder and close the store; if the run has ended, remove its unrecorded objects from the bucket.
 *   5. If the run is completed, advance its export: queue further export runs, or end the export (`scheduler.ts`).
 *
 * @returns false if the run is not due.
 * @throws errors of the database; a later job then claims the run again.
 */
export async function attemptRun(deps: AttemptDeps, runId: string): Promise<boolean> {
  if (deps.attempts.stopping) return false;
  const claimedAtMs = performance.now();
  const claimed = await claimRun(deps, runId);
  if (claimed === undefined) return false;
  const end = await deps.attempts.run(
    claimed.run,
    claimedAtMs,
    async (signal): Promise<AttemptOutcome | 'completed'> => {
      try {
        await createFiles(deps, claimed, signal);
        return 'completed';
      } catch (error) {
        // After an abort, the recorded outcome is the reason of the abort and not the error that the aborted step threw,
        // unless that error is EXPORT_ATTEMPT_OVER.
        return await endAttempt(deps, claimed.run, signal.aborted && !isAttemptOver(error) ? signal.reason : error);
      }
    },
  );
  endedAttempts.inc({ end });
  if (end === 'over' || end === 'failed') await cleanUpRun(deps, claimed.run);
  if (end === 'completed') {
    const { stopped } = deps.attempts;
    await advanceExport(deps, claimed.of.id, stopped).catch(ignoreStop(deps.attempts));
  }
  return true;
}

/** Ignores that work was aborted because this process stops: the sweep of another process continues it. */
function ignoreStop({ stopped }: LiveAttempts): (error: unknown) => void {
  return (error) => {
    if (!stopped.aborted || error !== stopped.reason) throw error;
  };
}

async function createFiles(
  deps: AttemptDeps,
  { run, of, nextPart }: ClaimedExportRun,
  signal: AbortSignal,
): Promise<void> {
  const { database, folders } = deps;
  if (await isProjectDeleted(database, of)) throw runlakeError('EXPORT_PROJECT_DELETED');
  const store = await deps.openStore(of);
  const source = deps.openSource(buildScope(of, run), toExportFormat(of));
  try {
    await folders.withFolder(run.id, (folder) =>
      exportRun(
        {
          source,
          store,
          checkpoint: new Checkpoint(deps, run),
          folder,
          getPartKey: (part) => buildPartKey(of, run, part),
          at: { ...run, nextPart },
        },
        signal,
      ),
    );
  } finally {
    source.close();
    await store.close();
  }
}

function isAttemptOver(error: unknown): boolean {
  return isRunlakeError(error) && error.code === 'EXPORT_ATTEMPT_OVER';
}

/**
 * Folders for files that have not been uploaded yet: one folder below `root` for this process, with a subfolder for
 * each attempt. Their content is not needed after an attempt or a crash. When a process starts, it removes the folders
 * of crashed processes.
 */
export interface WorkFolders {
  /** Runs `work` with a new folder and removes the folder afterwards. */
  withFolder<Result>(name: string, work: (folder: string) => Promise<Result>): Promise<Result>;
  close(): Promise<void>;
}

/**
 * Creates the folder of this process below `root`.
 *
 * @throws WORK_FILE_UNUSABLE if `root` cannot be created, read or written.
 */
export async function openWorkFolders(root: string): Promise<WorkFolders> {
  const own = await createProcessFolder(root).catch((cause: unknown) => {
    throw toWorkFileError(root, cause);
  });
  return {
    async withFolder(name, work) {
      const folder = join(own, `${name}-${randomBytes(4).toString('hex')}`);
      await mkdir(folder).catch((cause: unknown) => {
        throw toWorkFileError(root, cause);
      });
      try {
        return await work(folder);
      } finally {
        await rm(folder, { recursive: true, force: true });
      }
    },
    close: () => rm(own, { recursive: true, force: true }),
  };
}
