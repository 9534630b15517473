import type { ClickHouse, Command } from '../../infra/clickhouse/clickhouse.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { attachmentEvents, feedbackEvents, runEvents } from '../../schemas/topics.ts';
import { nilUuid } from '../ingest/run-event/run-event.ts';

/** Topics whose keys consist of the workspace and the trace or the run, or the project that feedback is about. */
const topics = [runEvents, feedbackEvents, attachmentEvents].map(({ name }) => name);

/** Traces of deferred events, or dead-letter records, per statement: a workspace may have millions of either. */
const rowsAtOnce = 50_000;

/** Returns those of the candidates that are to be deleted. */
type FindDeleted = (candidates: readonly string[]) => Promise<readonly string[]>;

/**
 * Deletes deferred events of traces, and dead-letter records of traces and runs that the in-process log keeps. Only
 * traces and runs that have such rows are looked up in ClickHouse.
 *
 * @param ids Query for ids of the traces and runs, in a column `id`. It may read `candidates`, some of the ids that have such
 *   rows.
 * @throws errors of the stores.
 */
export async function deleteUnstoredEvents(
  { clickhouse, database }: { readonly clickhouse: ClickHouse; readonly database: Database },
  tenantId: string,
  ids: Pick<Command, 'sql' | 'params'>,
  maxRows = rowsAtOnce,
): Promise<void> {
  const findDeleted: FindDeleted = async (candidates) => {
    if (candidates.length === 0) return [];
    const deleted = await clickhouse.query<{ id: string }>({
      name: 'find-deleted-candidates',
      sql: `SELECT DISTINCT id FROM (${ids.sql}) WHERE id IN candidates`,
      ...(ids.params && { params: ids.params }),
      externalTable: { name: 'candidates', structure: 'id UUID', rows: candidates.map((id) => [id]) },
    });
    return deleted.map(({ id }) => id);
  };
  await deleteDeferredEvents(database, tenantId, findDeleted, maxRows);
  await deleteDeadLetters(database, tenantId, findDeleted, maxRows);
}

async function deleteDeferredEvents(
  database: Database,
  tenantId: string,
  findDeleted: FindDeleted,
  maxRows: number,
): Promise<void> {
  for (let after = nilUuid; ; ) {
    const rows = await database.query<{ id: string }>(
      `SELECT DISTINCT trace_id AS id FROM deferred_events WHERE tenant_id = $1 AND trace_id > $2
       ORDER BY trace_id LIMIT $3`,
      [tenantId, after, maxRows],
    );
    const found = await findDeleted(rows.map(({ id }) => id));
    await database.execute('DELETE FROM deferred_events WHERE tenant_id = $1 AND trace_id = ANY ($2::uuid[])', [
      tenantId,
      found,
    ]);
    const last = rows.at(-1);
    if (last === undefined || rows.length < maxRows) return;
    after = last.id;
  }
}

/** Visits the records of all workspaces, because they have no index by workspace. */
async function deleteDeadLetters(
  database: Database,
  tenantId: string,
  findDeleted: FindDeleted,
  maxRows: number,
): Promise<void> {
  for (let after = 0; ; ) {
    const [slice] = await database.query<{ last: number | null; ids: string[] }>(
      `WITH slice AS MATERIALIZED (
         SELECT id, topic, key FROM dead_letters WHERE id > $3 ORDER BY id LIMIT $4
       ), own AS (
         SELECT encode(key, 'escape') AS key FROM slice
         WHERE topic = ANY ($2::text[]) AND substring(key FOR 37) = convert_to($1::text || ':', 'UTF8')
       )
       SELECT (SELECT max(id) FROM slice) AS last,
         ARRAY(SELECT DISTINCT substring(key FROM 38) FROM own WHERE key ~ ':[0-9a-f-]{36}$') AS ids`,
      [tenantId, topics, after, maxRows],
    );
    const last = slice?.last ?? null;
    if (last === null) return;
    const found = await findDeleted(slice?.ids ?? []);
    if (found.length > 0) {
      await database.execute(
        `DELETE FROM dead_letters WHERE id > $3 AND id <= $4 AND topic = ANY ($1::text[]) AND encode(key, 'escape') = ANY ($2::text[])`,
        [topics, found.map((id) => `${tenantId}:${id}`), after, last],
      );
    }
    after = last;
  }
}
