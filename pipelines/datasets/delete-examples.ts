import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { isRunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { deleteAttachmentSets } from '../attachments/attachment-sets.ts';
import { toUniqueIds } from '../ingest/run-event/uuid.ts';
import { recordAuditLog } from '../tenants/audit-logs.ts';
import { queueForDatasets } from './lock-dataset.ts';
import { type LockedDataset, writeTimeoutMs, writeVersionInTransaction } from './versions.ts';

/**
 * Deletes examples from the newest version of their datasets; earlier versions keep them. Deletes either all of the
 * examples or none.
 *
 * @throws NOT_FOUND if one of them does not exist.
 */
export async function deleteExamples(database: Database, workspaceId: string, ids: readonly string[]): Promise<void> {
  const exampleIds = toUniqueIds(ids);
  const condition = `workspace_id = $1 AND id = ANY ($2::uuid[]) AND valid_to = 'infinity'`;
  const remove = async (tx: Sql) => {
    let deleted = 0;
    for (const datasetId of await findDatasets(tx, condition, workspaceId, exampleIds)) {
      const end = async (_: Sql, { asOf }: LockedDataset) => {
        const rows = await tx.execute(`UPDATE examples SET valid_to = $4 WHERE ${condition} AND dataset_id = $3`, [
          workspaceId,
          exampleIds,
          datasetId,
          asOf,
        ]);
        deleted += rows;
        return -rows;
      };
      await writeVersionInTransaction(tx, workspaceId, datasetId, end, { deletes: true });
    }
    if (deleted < exampleIds.length) throw runlakeError('NOT_FOUND', { what: 'Example' });
  };
  const datasetIds = await findDatasets(database, condition, workspaceId, exampleIds);
  await queueForDatasets(datasetIds, () => database.transaction(remove));
}

/**
 * Deletes an example from the newest version of its dataset. If this version does not contain it, nothing happens.
 *
 * @throws NOT_FOUND if no version of the dataset contains it.
 */
export async function deleteExampleOfDataset(
  database: Database,
  workspaceId: string,
  { datasetId, exampleId }: { readonly datasetId: string; readonly exampleId: string },
): Promise<void> {
  const [example] = await database.query<{ isCurrent: boolean }>(
    `SELECT bool_or(valid_to = 'infinity') AS "isCurrent" FROM examples
     WHERE workspace_id = $1 AND dataset_id = $2 AND id = $3 GROUP BY id`,
    [workspaceId, datasetId, exampleId],
  );
  if (example === undefined) throw runlakeError('NOT_FOUND', { what: 'Example' });
  if (!example.isCurrent) return;
  await deleteExamples(database, workspaceId, [exampleId]).catch((error: unknown) => {
    // Another request has deleted it at the same time.
    if (!isRunlakeError(error) || error.code !== 'NOT_FOUND') throw error;
  });
}

/**
 * Deletes examples and their attachments from all versions. The attachments are deleted before the commit, so that a
 * crash leaves no content without an example; a repeated call deletes what remains. Deletes either all of the examples
 * or none.
 *
 * @throws NOT_FOUND if one of them does not exist in any version; errors of the stores.
 */
export async function hardDeleteExamples(
  { database, clickhouse }: { readonly database: Database; readonly clickhouse: ClickHouse },
  workspaceId: string,
  ids: readonly string[],
): Promise<void> {
  const exampleIds = toUniqueIds(ids);
  const condition = 'workspace_id = $1 AND id = ANY ($2::uuid[])';
  const remove = async (tx: Sql) => {
    const deleted = new Set<string>();
    const sets = new Set<string>();
    for (const datasetId of await findDatasets(tx, condition, workspaceId, exampleIds)) {
      const target = { kind: 'dataset', id: datasetId };
      await recordAuditLog(tx, { workspaceId, action: 'example.delete', target, details: { example_ids: exampleIds } });
      const erase = async () => {
        // One row for each example: it may have very many states.
        const rows = await tx.query<{ id: string; current: boolean; sets: string[] }>(
          `WITH removed AS (
             DELETE FROM examples WHERE ${condition} AND dataset_id = $3 RETURNING id, valid_to, attachments
           )
           SELECT id, bool_or(valid_to = 'infinity') AS current,
             array_remove(array_agg(DISTINCT entry.value ->> 'set'), NULL) AS sets
           FROM removed LEFT JOIN LATERAL jsonb_each(attachments) AS entry ON true GROUP BY id`,
          [workspaceId, exampleIds, datasetId],
        );
        for (const row of rows) {
          deleted.add(row.id);
          for (const set of row.sets) sets.add(set);
        }
        return -rows.filter(({ current }) => current).length;
      };
      await writeVersionInTransaction(tx, workspaceId, datasetId, erase, { deletes: true });
    }
    if (deleted.size < exampleIds.length) throw runlakeError('NOT_FOUND', { what: 'Example' });
    await deleteAttachmentSets(clickhouse, workspaceId, [...sets]);
  };
  const datasetIds = await findDatasets(database, condition, workspaceId, exampleIds);
  await queueForDatasets(datasetIds, () => database.transaction(remove, { timeoutMs: writeTimeoutMs }));
}

/** Returns the ids of the datasets that contain the examples, in the order in which the datasets must be locked. */
async function findDatasets(tx: Sql, condition: string, workspaceId: string, ids: readonly string[]) {
  const rows = await tx.query<{ id: string }>(
    `SELECT DISTINCT dataset_id AS id FROM examples WHERE ${condition} ORDER BY 1`,
    [workspaceId, ids],
  );
  return rows.map(({ id }) => id);
}
