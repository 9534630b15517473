import type { Jobs } from '../../infra/jobs/jobs.ts';
import { publishStoredDeadLetter } from '../../pipelines/dead-letters/dead-letter-replays.ts';
import { expireDeferredEvents } from '../../pipelines/ingest/expire-deferred-events.ts';
import { deleteProjectRuns, requeueDeletions } from '../../pipelines/projects/delete-projects.ts';
import { changeTraces } from '../../pipelines/retention/change-traces.ts';
import { deleteWorkspaceData, requeueWorkspaceDeletions } from '../../pipelines/tenants/delete-workspace-data.ts';
import { enqueueDeletions } from './enqueue-deletions.ts';
import type { RoleParts } from './open-stores.ts';

const cleanupIntervalMs = 10 * 60_000;
const changeTracesIntervalMs = 30_000;
/**
 * Maximum time that an event waits for its trace before the event is moved to the dead-letter queue. It is longer than
 * a typical outage of a sender.
 */
const deferredEventHours = 24;

/** Runs background jobs in this process until `jobs` closes. @throws JOBS_UNAVAILABLE */
export async function startWorkers({
  config,
  logger,
  log,
  jobs,
  stores: { database, clickhouse },
}: RoleParts & { readonly jobs: Jobs }): Promise<void> {
  jobs.work('expire-deferred-events', async (_payload, { signal }) => {
    await expireDeferredEvents({ log, database, logger }, { hours: deferredEventHours, signal });
  });
  jobs.work('delete-project-runs', ({ workspace_id: workspaceId, project_id: projectId }, { signal }) =>
    deleteProjectRuns({ clickhouse, database, log }, { workspaceId, projectId, signal }),
  );
  jobs.work('replay-dead-letter', ({ dead_letter_id: deadLetterId }) =>
    publishStoredDeadLetter({ log, database }, deadLetterId),
  );
  jobs.work('delete-workspace-data', ({ workspace_id: workspaceId }, { signal }) =>
    deleteWorkspaceData({ clickhouse, database, jobs, logger, log }, { workspaceId, signal }),
  );
  jobs.work('change-traces', (_payload, { signal }) => changeTraces({ database, clickhouse, log, config }, signal));
  jobs.work('requeue-deletions', async () => {
    const deps = { database, ...enqueueDeletions(jobs) };
    await requeueDeletions(deps);
    await requeueWorkspaceDeletions(deps);
  });
  await jobs.every('expire-deferred-events', cleanupIntervalMs, {});
  await jobs.every('change-traces', changeTracesIntervalMs, {});
  // `every` runs the first job immediately.
  await jobs.every('requeue-deletions', cleanupIntervalMs, {});
}
