import type { Jobs } from '../../infra/jobs/jobs.ts';
import type { Services } from '../server/services.ts';

/** Queues the deletion of what a deleted project or workspace holds; at most one job at a time for each. */
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
