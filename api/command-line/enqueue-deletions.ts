import type { Jobs } from '../../infra/jobs/jobs.ts';
import type { Services } from '../server/services.ts';

/**
 * Returns functions that enqueue a job. The job deletes the data of a deleted project or workspace. The queue contains
 * at most one such job for each project and workspace.
 */
export function enqueueDeletions(
  jobs: Pick<Jobs, 'enqueue'>,
): Pick<Services, 'enqueueProjectDeletion' | 'enqueueWorkspaceDeletion'> {
  return {
    enqueueProjectDeletion: ({ workspaceId, projectId }) =>
      jobs.enqueue('delete-project-runs', { workspace_id: workspaceId, project_id: projectId }, { jobId: projectId }),
    enqueueWorkspaceDeletion: (workspaceId) =>
      jobs.enqueue('delete-workspace-data', { workspace_id: workspaceId }, { jobId: workspaceId }),
  };
}
