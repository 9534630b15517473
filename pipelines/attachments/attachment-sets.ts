import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { deleteRows } from '../../infra/clickhouse/delete-rows.ts';

/** Deletes sets with their content. @throws errors of ClickHouse. */
export async function deleteAttachmentSets(
  clickhouse: ClickHouse,
  workspaceId: string,
  sets: readonly string[],
): Promise<void> {
  for (let at = 0; at < sets.length; at += setsPerDeletion) {
    await deleteRows(clickhouse, {
      name: 'delete-attachment-sets',
      table: 'attachments',
      condition: 'tenant_id = {tenant:UUID} AND run_id IN {sets:Array(UUID)}',
      params: { tenant: workspaceId, sets: sets.slice(at, at + setsPerDeletion) },
    });
  }
}

/** A parameter has at most 128 KiB. */
const setsPerDeletion = 2_000;
