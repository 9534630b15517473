import type { ProjectResolver } from '../../projects/resolve-project.ts';
import { nilUuid } from '../run-event/run-event.ts';
import type { Rejection, RunDraft } from './draft.ts';
import { rejectionOf } from './rejection.ts';

/** A draft with its project, or with the nil UUID if its trace decides the project. */
export interface ProjectDraft {
  readonly draft: RunDraft;
  readonly projectId: string;
}

/**
 * Finds or creates the project of every draft, each distinct project once. A post that names none belongs to `default`.
 * A patch that names none gets the nil UUID: the sink assigns the project of its trace.
 */
export async function assignProjects(
  workspaceId: string,
  drafts: readonly RunDraft[],
  projects: ProjectResolver,
  rejected: Rejection[],
): Promise<ProjectDraft[]> {
  const found = new Map<string, { projectId: string } | { refusal: unknown }>();
  const resolved: ProjectDraft[] = [];
  for (const draft of drafts) {
    const { kind, projectId: sessionId, projectName: sessionName } = draft;
    if (kind === 'patch' && sessionId === undefined && sessionName === undefined) {
      resolved.push({ draft, projectId: nilUuid });
      continue;
    }
    const key = `${kind}|${sessionId ?? ''}|${sessionName ?? ''}`;
    let project = found.get(key);
    if (project === undefined) {
      project = await projects
        .resolve({ workspaceId, sessionId, sessionName, forPatch: kind === 'patch' })
        .then((projectId) => ({ projectId }))
        .catch((refusal: unknown) => ({ refusal }));
      found.set(key, project);
    }
    if ('projectId' in project) resolved.push({ draft, projectId: project.projectId });
    else rejected.push(rejectionOf(draft.runId, project.refusal));
  }
  return resolved;
}
