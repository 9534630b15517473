import type { RunlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';

export interface Limit {
  /** Maximum number that an owner may have. */
  readonly most: number;
  /** SQL that counts what the organisation or deployment `$1` has, as `there`. */
  readonly count: string;
}

type Owner = { readonly organizationId: string } | { readonly workspaceId: string } | { readonly deploymentId: string };

const lockOwner = {
  organizationId: 'SELECT id FROM organizations WHERE id = $1 FOR NO KEY UPDATE',
  workspaceId:
    'SELECT id FROM organizations WHERE id = (SELECT organization_id FROM workspaces WHERE id = $1) FOR NO KEY UPDATE',
  deploymentId: 'SELECT deployment_id AS id FROM agents.deployments WHERE deployment_id = $1 FOR NO KEY UPDATE',
} as const;

/**
 * Undoes a transaction that made one thing too many, by throwing what `refuse` says.
 *
 * Invariant: transactions that create things of one owner count one after the other, and each counts what the ones before it
 * committed, so that two at the same time cannot pass a limit together.
 *
 *   1. The thing is inserted, by the caller.
 *   2. The row of the organisation or deployment is locked until the end of the transaction.
 *   3. A further statement counts, which sees what was committed until now.
 *
 * To be called last: who holds the row waits for nobody then, and holds it briefly. What was there before a limit was lowered stays.
 *
 * @param owner An organisation, a workspace that stands for its organisation, or a deployment.
 */
export async function stayWithin(
  tx: Sql,
  owner: Owner,
  { most, count }: Limit,
  refuse: () => RunlakeError,
): Promise<void> {
  const [kind, id] = Object.entries(owner)[0] as [keyof typeof lockOwner, string];
  const [held] = await tx.query<{ id: string }>(lockOwner[kind], [id]);
  const [found] = await tx.query<{ there: number }>(count, [held?.id]);
  if (found !== undefined && found.there > most) throw refuse();
}
