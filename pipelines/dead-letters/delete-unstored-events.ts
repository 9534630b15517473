import type { ClickHouse, Command } from '../../infra/clickhouse/clickhouse.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { attachmentEvents, feedbackEvents, runEvents } from '../../schemas/topics.ts';

/** Topics whose keys consist of the workspace and the trace or the run, or the project that feedback is about. */
const topics = [runEvents, feedbackEvents, attachmentEvents].map(({ name }) => name);

/**
 * Deletes deferred events of traces, and dead-letter records of traces and runs that the in-process log keeps. Only the
 * few traces and runs that have such rows are looked up in ClickHouse.
 *
 * @param ids Query for ids of the traces and runs, in a column `id`. It may read `candidates`, the ids that have such rows.
 * @throws errors of the stores.
 */
export async function deleteUnstoredEvents(
  { clickhouse, database }: { readonly clickhouse: ClickHouse; readonly database: Database },
  tenantId: string,
  ids: Pick<Command, 'sql' | 'params'>,
): Promise<void> {
  const candidates = await findCandidates(database, tenantId);
  if (candidates.length === 0) return;
  const deleted = await clickhouse.query<{ id: string }>({
    name: 'find-deleted-candidates',
    sql: `SELECT DISTINCT id FROM (${ids.sql}) WHERE id IN candidates`,
    ...(ids.params && { params: ids.params }),
    externalTable: { name: 'candidates', structure: 'id UUID', rows: candidates.map((id) => [id]) },
  });
  const found = deleted.map(({ id }) => id);
  await database.execute('DELETE FROM deferred_events WHERE tenant_id = $1 AND trace_id = ANY ($2::uuid[])', [
    tenantId,
    found,
  ]);
  await database.execute(
    `DELETE FROM dead_letters WHERE topic = ANY ($1::text[]) AND encode(key, 'escape') = ANY ($2::text[])`,
    [topics, found.map((id) => `${tenantId}:${id}`)],
  );
}

async function findCandidates(database: Database, tenantId: string): Promise<string[]> {
  const rows = await database.query<{ id: string }>(
    `SELECT trace_id::text AS id FROM deferred_events WHERE tenant_id = $1
     UNION SELECT substring(encode(key, 'escape') FROM 38) FROM dead_letters
       WHERE topic = ANY ($2::text[]) AND encode(key, 'escape') ~ ('^' || $1::text || ':[0-9a-f-]{36}$')`,
    [tenantId, topics],
  );
  return rows.map(({ id }) => id);
}
