import type { RunlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';

export interface Limit {
  /** Most of them that an organisation may have. */
  readonly most: number;
  /** SQL that says how many the organisation `$1` has, as `there`. */
  readonly count: string;
}

/**
 * Undoes a transaction that made one thing too many, by throwing what `refuse` says.
 *
 * Invariant: those that make things of an organisation count one after the other, each what the ones before it committed, so that
 * two at the same time do not pass a limit together.
 *
 *   1. The thing is inserted, by the caller.
 *   2. The row of the organisation is held until the end of the transaction.
 *   3. A further statement counts, which sees what was committed until now.
 *
 * To be called last: who holds the row waits for nobody then, and holds it briefly. What was there before a limit was lowered stays.
 *
 * @param owner The organisation, or a workspace of it.
 */
export async function stayWithin(
  tx: Sql,
  owner: { readonly organizationId: string } | { readonly workspaceId: string },
  { most, count }: Limit,
  refuse: () => RunlakeError,
): Promise<void> {
  const [held] = await tx.query<{ id: string }>(
    'organizationId' in owner
      ? 'SELECT id FROM organizations WHERE id = $1 FOR NO KEY UPDATE'
      : 'SELECT id FROM organizations WHERE id = (SELECT organization_id FROM workspaces WHERE id = $1) FOR NO KEY UPDATE',
    ['organizationId' in owner ? owner.organizationId : owner.workspaceId],
  );
  const [found] = await tx.query<{ there: number }>(count, [held?.id]);
  if (found !== undefined && found.there > most) throw refuse();
}
