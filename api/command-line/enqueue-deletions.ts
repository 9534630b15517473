import type { Jobs } from '../../infra/jobs/jobs.ts';
import type { Services } from '../server/services.ts';

/**
 * Returns functions that queue the deletion of a deleted project's or workspace's data; at most one job per project or
 * workspace is queued.
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
