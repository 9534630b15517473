/**
 * One attempt at an export run, from claiming its row to ending the attempt.
 *
 *   1. Claim the run (`take-run.ts`), or return if it is not due.
 *   2. Make its files (`export-run.ts`) in a folder of its own, under a signal that aborts on loss of the lease, on
 *      timeout and on shutdown (`live-attempts.ts`).
 *   3. If the run is not completed, record the outcome and what follows (`end-attempt.ts`).
 *   4. Remove the folder and close the store; if the run has ended, remove its unrecorded objects from the bucket
 *      (`tidy-run.ts`).
 *   5. Advance its export: further export runs, or its end (`advance-export.ts`).
 */
import { isRunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import { advanceExport } from '../coordinate-export.ts';
import type { WorkDeps } from '../export-deps.ts';
import { formatOf, isProjectDeleted, keyOfPart, scopeOf } from '../export-locations.ts';
import { attemptsEnded } from '../export-metrics.ts';
import type { WorkFolders } from '../work-folders.ts';
import { Checkpoint } from './checkpoint.ts';
import { type AttemptEnd, endAttempt } from './end-attempt.ts';
import { exportRun } from './export-run.ts';
import type { LiveAttempts } from './live-attempts.ts';
import { type ClaimedRun, claimRun } from './run-record.ts';
import { tidyRun } from './tidy-run.ts';

export interface AttemptDeps extends WorkDeps {
  readonly attempts: LiveAttempts;
  readonly folders: WorkFolders;
}

/** @returns false if the run is not due. @throws errors of the database; a later job then claims the run again. */
export async function attemptRun(deps: AttemptDeps, runId: string): Promise<boolean> {
  if (deps.attempts.stopping) return false;
  const claimed = await claimRun(deps.database, runId, deps.limits, deps.now());
  if (claimed === undefined) return false;
  const end = await deps.attempts.during(claimed.run, async (signal): Promise<AttemptEnd | 'completed'> => {
    try {
      await makeFiles(deps, claimed, signal);
      return 'completed';
    } catch (error) {
      // After an abort, the reason of the abort counts, whatever error the aborted step threw.
      return await endAttempt(deps, claimed.run, signal.aborted && !isOver(error) ? signal.reason : error);
    }
  });
  attemptsEnded.inc({ end });
  if (end === 'over' || end === 'failed') await tidyRun(deps, claimed.run);
  if (end === 'completed') await advanceExport(deps, claimed.of.id);
  return true;
}

async function makeFiles(deps: AttemptDeps, { run, of, nextPart }: ClaimedRun, signal: AbortSignal): Promise<void> {
  const { database, now, folders } = deps;
  if (await isProjectDeleted(database, of)) throw runlakeError('EXPORT_PROJECT_DELETED');
  const store = await deps.openStore(of);
  const source = deps.openSource(scopeOf(of, run), formatOf(of));
  try {
    await folders.during(run.id, (folder) =>
      exportRun(
        {
          source,
          store,
          checkpoint: new Checkpoint(database, run, now),
          folder,
          keyOf: (part) => keyOfPart(of, run, part),
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

function isOver(error: unknown): boolean {
  return isRunlakeError(error) && error.code === 'EXPORT_ATTEMPT_OVER';
}
