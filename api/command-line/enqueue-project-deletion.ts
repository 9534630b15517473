import type { Jobs } from '../../infra/jobs/jobs.ts';
import type { DeletedProject } from '../../pipelines/projects/delete-projects.ts';

/** Hands deleted projects to the job that deletes their runs; one at a time for each. */
export function enqueueProjectDeletion(jobs: Jobs): (project: DeletedProject) => Promise<void> {
  return ({ workspaceId, projectId }) =>
    jobs.enqueue('delete-project-runs', { workspace_id: workspaceId, project_id: projectId }, { jobId: projectId });
}
