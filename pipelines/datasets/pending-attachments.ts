/**
 * Tracks attachments of examples that are not committed yet.
 *
 * Invariant: a set whose content is in ClickHouse either belongs to a committed example or is listed in
 * `pending_attachment_sets`.
 *
 *   1. A write inserts the ids of its new sets into this table before it stores their content.
 *   2. The transaction that commits the examples deletes these rows. It fails if one of them is missing.
 *   3. Rows that are older than an hour were left by a failed write or a crash. A later write first deletes the
 *      content of these sets, then the rows. It skips rows that a transaction of step 2 has locked.
 */
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database, Sql } from '../../infra/postgres/database.ts';
import { deleteAttachmentSets } from '../attachments/attachment-sets.ts';

interface PendingAttachmentDeps {
  readonly database: Database;
  readonly clickhouse: ClickHouse;
}

/**
 * Performs step 1 of the header comment. Before that, performs step 3 for the rows of earlier writes.
 *
 * @throws errors of the stores.
 */
export async function reserveAttachmentSets(
  deps: PendingAttachmentDeps,
  workspaceId: string,
  sets: readonly string[],
): Promise<void> {
  if (sets.length === 0) return;
  await deleteAbandonedSets(deps);
  await deps.database.execute(
    'INSERT INTO pending_attachment_sets (id, workspace_id) SELECT id, $1 FROM unnest($2::uuid[]) AS new (id)',
    [workspaceId, sets],
  );
}

/** Performs step 2 of the header comment. @throws CONFLICT if the write took longer than an hour. */
export async function confirmAttachmentSets(tx: Sql, sets: readonly string[]): Promise<void> {
  if (sets.length === 0) return;
  const deleted = await tx.execute('DELETE FROM pending_attachment_sets WHERE id = ANY ($1::uuid[])', [sets]);
  if (deleted < sets.length) {
    throw runlakeError('CONFLICT', { reason: 'Storing the attachments took too long; send the request again.' });
  }
}

const maxAbandonedSets = 1_000;

function deleteAbandonedSets({ database, clickhouse }: PendingAttachmentDeps): Promise<void> {
  return database.transaction(async (tx) => {
    const rows = await tx.query<{ id: string; workspace: string }>(
      `SELECT id, workspace_id AS workspace FROM pending_attachment_sets WHERE created_at < now() - interval '1 hour'
       ORDER BY created_at LIMIT ${maxAbandonedSets} FOR UPDATE SKIP LOCKED`,
    );
    for (const workspace of new Set(rows.map((row) => row.workspace))) {
      const sets = rows.filter((row) => row.workspace === workspace).map(({ id }) => id);
      await deleteAttachmentSets(clickhouse, workspace, sets);
      await tx.execute('DELETE FROM pending_attachment_sets WHERE id = ANY ($1::uuid[])', [sets]);
    }
  });
}
