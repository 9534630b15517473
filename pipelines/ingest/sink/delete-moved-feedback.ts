/**
 * Deletes feedback entries that were sent again for another run. Events of one run merge in the table.
 *
 * Invariant: of all events of a feedback entry, the one with the highest version wins, whatever runs they are for.
 * Exception: events for several runs that are not found in step 1, because they were sent more than a day apart and not by
 * `createFeedback`.
 *
 *   1. After the insert of a batch, find its entries that may be stored for several runs: those with several events of the
 *      last day, and those whose sender found them stored for another run.
 *   2. Replace each stored event by a deletion if a newer event of its entry is stored for another run. The deletion has
 *      the version of the newest event, so that an older event that is stored later has no effect.
 *
 * If two sinks store events of an entry at the same time, at least the one that performs step 1 last finds both. If a
 * process crashes before step 2, the log delivers the batch again.
 */
import type { ClickHouse } from '../../../infra/clickhouse/clickhouse.ts';
import { lookupSettings } from '../../../infra/clickhouse/settings.ts';
import { getFieldOffset, readUuidAt } from '../../../infra/event-log/avro.ts';
import { feedbackEvents } from '../../../schemas/topics.ts';
import { isMovedFeedback } from '../../feedback/feedback-event.ts';
import type { ValidRecord } from './split-into-batches.ts';

/** Id of a feedback entry, with its workspace. */
type EntryKey = readonly [tenantId: string, id: string];

const entriesPerStatement = 1_000;
/** Both statements of step 2 read the ids of all feedback of the workspaces, which may be a billion. */
const statementTimeoutMs = 600_000;

/** SQL: stored events, if a newer event of their entry is stored for another run. */
const supersededSql = `SELECT * FROM (
    SELECT *, max(version) OVER (PARTITION BY tenant_id, id) AS newest FROM feedback FINAL
    WHERE tenant_id IN {tenants:Array(UUID)} AND id IN {ids:Array(UUID)})
  WHERE isNull(deleted_at) AND version < newest`;

const absent = [
  ...['trace_id', 'start_time', 'score', 'value', 'comment', 'correction', 'feedback_source', 'feedback_group_id'],
  ...['comparative_experiment_id', 'extra', 'error', 'keeps_trace'],
];

/** @throws errors of ClickHouse. */
export async function deleteMovedFeedback(clickhouse: ClickHouse, events: readonly ValidRecord[]): Promise<void> {
  const entries = await findCandidates(clickhouse, events);
  for (let at = 0; at < entries.length; at += entriesPerStatement) {
    const some = entries.slice(at, at + entriesPerStatement);
    const params = { tenants: [...new Set(some.map(([tenantId]) => tenantId))], ids: some.map(([, id]) => id) };
    const found = await clickhouse.query({
      name: 'find-superseded-feedback',
      sql: `SELECT id FROM (${supersededSql}) LIMIT 1`,
      params,
      settings: lookupSettings,
      timeoutMs: statementTimeoutMs,
    });
    if (found.length === 0) continue;
    await clickhouse.command({
      name: 'delete-superseded-feedback',
      sql: `INSERT INTO feedback SELECT * EXCEPT (newest) REPLACE (newest AS version, now64(6) AS deleted_at,
          '' AS key, '' AS source_type, ${absent.map((column) => `NULL AS ${column}`).join(', ')})
        FROM (${supersededSql})`,
      params,
      profile: 'bulk',
      timeoutMs: statementTimeoutMs,
    });
  }
}

/** Performs step 1. */
async function findCandidates(clickhouse: ClickHouse, events: readonly ValidRecord[]): Promise<EntryKey[]> {
  const tenantAt = getFieldOffset(feedbackEvents, 'tenant_id');
  const idAt = getFieldOffset(feedbackEvents, 'id');
  const readKey = ({ record: { value } }: ValidRecord): EntryKey => [
    readUuidAt(value, tenantAt),
    readUuidAt(value, idAt),
  ];
  if (events.length === 0) return [];
  const repeated = await clickhouse.query<{ tenant_id: string; id: string }>({
    name: 'find-repeated-feedback',
    settings: lookupSettings,
    sql: `SELECT tenant_id, id FROM event_versions WHERE (tenant_id, id) IN keys
          GROUP BY tenant_id, id HAVING uniqExact(digest) > 1`,
    externalTable: {
      name: 'keys',
      structure: 'tenant_id UUID, id UUID',
      rows: events.map((event) => [...readKey(event)]),
    },
  });
  const moved = events.filter(({ record }) => isMovedFeedback(record.headers)).map(readKey);
  return [...repeated.map(({ tenant_id, id }): EntryKey => [tenant_id, id]), ...moved];
}
