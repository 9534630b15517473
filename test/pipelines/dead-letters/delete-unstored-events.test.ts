import { expect, it } from 'vitest';
import { deleteUnstoredEvents } from '../../../pipelines/dead-letters/delete-unstored-events.ts';
import { freshStores } from '../../engines/stores.ts';
import { forSuite } from '../../for-suite.ts';
import { deriveUuid } from '../runs/run-events.ts';

const stores = forSuite(() => freshStores());

const [tenantId, otherTenantId] = [deriveUuid('tenant'), deriveUuid('other tenant')];
const ids = Array.from({ length: 7 }, (_, number) => deriveUuid(`trace ${number}`));
const deletedIds = ids.filter((_, number) => number % 3 !== 0);

/** Returns the ids of the rows that are left, of one workspace. */
async function readLeft(table: 'deferred_events' | 'dead_letters', of: string): Promise<string[]> {
  const rows = await stores.database.query<{ key: string }>(`SELECT encode(key, 'escape') AS key FROM ${table}`);
  return rows.flatMap(({ key }) => (key.startsWith(of) ? [key.slice(37)] : [])).sort();
}

it.each([1, 2, 7, 1_000])('deletes the rows of the traces, %i at once, and no others', async (maxRows) => {
  const { database } = stores;
  const keys = ids.flatMap((id) => [`${otherTenantId}:${id}`, `${tenantId}:${id}`, `${tenantId}:${id}`]);
  await database.execute(
    `INSERT INTO deferred_events (topic, partition, log_offset, version, tenant_id, trace_id, key, value, headers)
     SELECT 'run-events', 0, n, n, left(key, 36)::uuid, right(key, 36)::uuid, convert_to(key, 'UTF8'), 'event', '{}'
     FROM unnest($1::text[]) WITH ORDINALITY AS keys (key, n)`,
    [keys],
  );
  await database.execute(
    `INSERT INTO dead_letters (topic, partition, log_offset, key, value, headers, reason, step)
     SELECT 'run-events', 0, n, convert_to(key, 'UTF8'), 'event', '{}', 'test', 'defer'
     FROM unnest($1::text[]) WITH ORDINALITY AS keys (key, n)`,
    [[...keys, `${tenantId}:no trace`]],
  );
  const sql = 'SELECT arrayJoin({deleted:Array(UUID)}) AS id';
  await deleteUnstoredEvents(stores, tenantId, { sql, params: { deleted: deletedIds } }, maxRows);
  const kept = ids.filter((id) => !deletedIds.includes(id)).flatMap((id) => [id, id]);
  expect(await readLeft('deferred_events', tenantId)).toEqual(kept.sort());
  expect(await readLeft('dead_letters', tenantId)).toEqual([...kept, 'no trace'].sort());
  for (const table of ['deferred_events', 'dead_letters'] as const) {
    expect(await readLeft(table, otherTenantId)).toEqual(ids.toSorted());
    await database.execute(`DELETE FROM ${table}`);
  }
});
