/**
 * The states of revisions, and the only function that changes them.
 *
 * Invariant: a revision changes its status only along {@link transitions}. A host changes it only with the fencing token
 * of its claim, so that a host that has lost its lease has no effect. The change, its row in `revision_transitions` and
 * what else depends on it are committed in one transaction.
 */
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import { removeControls } from './mask-secrets.ts';

export const revisionStatuses = [
  'CREATING',
  'QUEUED',
  'AWAITING_BUILD',
  'BUILDING',
  'AWAITING_DEPLOY',
  'DEPLOYING',
  'DEPLOYED',
  'CREATE_FAILED',
  'BUILD_FAILED',
  'DEPLOY_FAILED',
  'SKIPPED',
  'INTERRUPTED',
] as const;

export type RevisionStatus = (typeof revisionStatuses)[number];

interface Transition {
  readonly from: RevisionStatus;
  readonly to: RevisionStatus;
  readonly when: string;
}

export const transitions: readonly Transition[] = [
  { from: 'CREATING', to: 'QUEUED', when: 'a host has accepted its source and its secrets' },
  { from: 'CREATING', to: 'CREATE_FAILED', when: 'its source or its secrets cannot be used' },
  { from: 'CREATING', to: 'SKIPPED', when: 'a newer revision was created' },
  { from: 'QUEUED', to: 'AWAITING_BUILD', when: 'it has a source to build' },
  { from: 'QUEUED', to: 'AWAITING_DEPLOY', when: 'it is an image, or its build exists' },
  { from: 'QUEUED', to: 'SKIPPED', when: 'a newer revision was created' },
  { from: 'AWAITING_BUILD', to: 'BUILDING', when: 'a host has a free build slot' },
  { from: 'AWAITING_BUILD', to: 'SKIPPED', when: 'a newer revision was created' },
  { from: 'BUILDING', to: 'AWAITING_DEPLOY', when: 'the build succeeded' },
  { from: 'BUILDING', to: 'BUILD_FAILED', when: 'the build failed or exceeded a limit' },
  { from: 'BUILDING', to: 'INTERRUPTED', when: 'a newer revision was created' },
  { from: 'AWAITING_DEPLOY', to: 'DEPLOYING', when: 'its replicas may start' },
  { from: 'AWAITING_DEPLOY', to: 'SKIPPED', when: 'a newer revision was created' },
  { from: 'DEPLOYING', to: 'DEPLOYED', when: 'all its replicas answer' },
  { from: 'DEPLOYING', to: 'DEPLOY_FAILED', when: 'a replica could not be started, or not in time' },
  { from: 'DEPLOYING', to: 'INTERRUPTED', when: 'a newer revision was created' },
];

/** Returns true if a revision may change from `from` to `to`. */
export function isAllowed(from: RevisionStatus, to: RevisionStatus): boolean {
  return transitions.some((transition) => transition.from === from && transition.to === to);
}

export function isFinal(status: RevisionStatus): boolean {
  return !transitions.some(({ from }) => from === status);
}

/** Statuses in which a host has work to do. */
export const unfinishedStatuses = revisionStatuses.filter((status) => !isFinal(status));

/** The claim of a host on a revision. */
export interface RevisionClaim {
  readonly revisionId: string;
  readonly fence: number;
}

/**
 * Changes the status of a claimed revision. The claim continues if the new status is not final.
 *
 * @returns whether the status was changed. False: the host has lost its claim, or a newer revision has ended this one.
 */
export async function changeStatus(
  tx: Sql,
  { revisionId, fence }: RevisionClaim,
  { from, to, reason }: { readonly from: RevisionStatus; readonly to: RevisionStatus; readonly reason: string },
): Promise<boolean> {
  requireAllowed(from, to);
  const changed = await tx.execute(
    `UPDATE deployment_revisions SET status = $4, attempts = 1, status_changed_at = now(), updated_at = now(),
       lease_until = CASE WHEN $5 THEN NULL ELSE lease_until END
     WHERE id = $1 AND fence = $2 AND status = $3`,
    [revisionId, fence, from, to, isFinal(to)],
  );
  if (changed === 0) return false;
  await recordTransition(tx, revisionId, { from, to, reason });
  return true;
}

/** Reason that is stored for revisions that a newer one replaces. */
const supersededReason = 'A newer revision was created.';

/**
 * Ends all unfinished revisions of a deployment without a claim; hosts that have claimed them lose their claims.
 * Revisions that wait become SKIPPED, and those that are being built or started become INTERRUPTED. The caller must
 * have locked the deployment.
 */
export async function endUnfinishedRevisions(
  tx: Sql,
  deploymentId: string,
  reason: string = supersededReason,
): Promise<void> {
  const unfinished = await tx.query<{ id: string; status: RevisionStatus }>(
    'SELECT id, status FROM deployment_revisions WHERE deployment_id = $1 AND status = ANY ($2) FOR UPDATE',
    [deploymentId, unfinishedStatuses],
  );
  for (const { id, status } of unfinished) {
    const to = isAllowed(status, 'SKIPPED') ? 'SKIPPED' : 'INTERRUPTED';
    requireAllowed(status, to);
    await tx.execute(
      `UPDATE deployment_revisions SET status = $2, fence = fence + 1, lease_until = NULL, host_id = NULL,
         status_changed_at = now(), updated_at = now() WHERE id = $1`,
      [id, to],
    );
    await recordTransition(tx, id, { from: status, to, reason });
  }
}

/** Adds a row to the history of a revision. `from` is null for its creation. */
export async function recordTransition(
  tx: Sql,
  revisionId: string,
  { from, to, reason }: { readonly from: RevisionStatus | null; readonly to: RevisionStatus; readonly reason: string },
): Promise<void> {
  await tx.execute(
    `INSERT INTO revision_transitions (revision_id, position, from_status, to_status, reason)
     VALUES ($1, (SELECT count(*) FROM revision_transitions WHERE revision_id = $1), $2, $3, $4)`,
    [revisionId, from, to, removeControls(reason)],
  );
}

function requireAllowed(from: RevisionStatus, to: RevisionStatus): void {
  if (!isAllowed(from, to)) {
    throw runlakeError('INTERNAL', {}, { cause: `a revision must not change from ${from} to ${to}` });
  }
}
