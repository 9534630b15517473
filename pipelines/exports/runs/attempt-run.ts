/**
 * One attempt at a run of an export, from its row to its row.
 *
 *   1. The run is taken up (`take-run.ts`), or left alone where it is not to be worked on now.
 *   2. Under a signal that ends with lease, time or process (`live-attempts.ts`), in a folder of its own, its files are made
 *      (`export-run.ts`).
 *   3. Not completed: what that means is written down (`end-attempt.ts`).
 *   4. Folder and store are given back; what lies unrecorded in the bucket of a run that is over is removed (`tidy-run.ts`).
 *   5. Its export is brought on: further runs, or its end (`advance-export.ts`).
 */
import { fault, isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import { advanceExport } from '../advance-export.ts';
import { attemptsEnded } from '../export-metrics.ts';
import { formatOf, isProjectDeleted, keyOfPart, scopeOf } from '../export-places.ts';
import type { WorkPorts } from '../export-ports.ts';
import type { WorkFolders } from '../work-folders.ts';
import { Checkpoint } from './checkpoint.ts';
import { type AttemptEnd, endAttempt } from './end-attempt.ts';
import { exportRun } from './export-run.ts';
import type { LiveAttempts } from './live-attempts.ts';
import { type TakenRun, takeRun } from './take-run.ts';
import { tidyRun } from './tidy-run.ts';

export interface AttemptPorts extends WorkPorts {
  readonly attempts: LiveAttempts;
  readonly folders: WorkFolders;
}

/**
 * @returns false where the run is not to be worked on now.
 * @throws what the database throws; the run is then taken up again by the next look at it.
 */
export async function attemptRun(ports: AttemptPorts, runId: string): Promise<boolean> {
  if (ports.attempts.stopping) return false;
  const taken = await takeRun(ports.database, runId, ports.limits, ports.now());
  if (taken === undefined) return false;
  const end = await ports.attempts.during(taken.run, async (signal): Promise<AttemptEnd | 'completed'> => {
    try {
      await makeFiles(ports, taken, signal);
      return 'completed';
    } catch (error) {
      // Whatever an aborted step fails with, why it was aborted is what counts, also where a step did not pass it on.
      return await endAttempt(ports, taken.run, signal.aborted && !isOver(error) ? signal.reason : error);
    }
  });
  attemptsEnded.inc({ end });
  if (end === 'over' || end === 'failed') await tidyRun(ports, taken.run);
  if (end === 'completed') await advanceExport(ports, taken.of.id);
  return true;
}

async function makeFiles(ports: AttemptPorts, { run, of, nextPart }: TakenRun, signal: AbortSignal): Promise<void> {
  const { database, now, folders } = ports;
  if (await isProjectDeleted(database, of)) throw fault('EXPORT_PROJECT_DELETED');
  const store = await ports.openStore(of);
  const source = ports.openSource(scopeOf(of, run), formatOf(of));
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
