import type { ProjectResolver } from '../../projects/resolve-project.ts';
import { nilUuid } from '../run-event/run-event.ts';
import type { Rejection, RunDraft } from './draft.ts';
import { rejectionOf } from './rejection.ts';

/** A draft whose project is known, or known to be left to its trace. */
export interface PlacedDraft {
  readonly draft: RunDraft;
  readonly projectId: string;
}

/**
 * Finds or makes the project of every draft, each distinct one once. A post that names none belongs to `default`;
 * a patch that names none belongs to its trace, which the sink knows.
 */
export async function assignProjects(
  workspaceId: string,
  drafts: readonly RunDraft[],
  projects: ProjectResolver,
  rejected: Rejection[],
): Promise<PlacedDraft[]> {
  const found = new Map<string, { projectId: string } | { refusal: unknown }>();
  const placed: PlacedDraft[] = [];
  for (const draft of drafts) {
    const { kind, projectId: sessionId, projectName: sessionName } = draft;
    if (kind === 'patch' && sessionId === undefined && sessionName === undefined) {
      placed.push({ draft, projectId: nilUuid });
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
    if ('projectId' in project) placed.push({ draft, projectId: project.projectId });
    else rejected.push(rejectionOf(draft.runId, project.refusal));
  }
  return placed;
}
