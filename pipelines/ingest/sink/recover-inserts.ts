import type { ClickHouse } from '../../../infra/clickhouse/clickhouse.ts';
import { endInserts } from '../../../infra/clickhouse/end-inserts.ts';
import type { EventLog } from '../../../infra/event-log/event-log.ts';
import type { Database } from '../../../infra/postgres/pool.ts';
import { markHoursDirty } from '../../usage/mark-hours-dirty.ts';
import { repairViews } from './repair-views.ts';

export interface RecoverDeps {
  readonly log: EventLog;
  readonly clickhouse: ClickHouse;
  readonly database: Database;
}

/**
 * Completes insert batches that were begun and not completed. Their inserts may have happened, or may have reached
 * `runs` but not the views on it. Marks their hours dirty, because counting an hour again is harmless. Skips batches
 * that are in flight now.
 */
export async function recoverInserts(
  { log, clickhouse, database }: RecoverDeps,
  inFlight: ReadonlySet<string>,
): Promise<void> {
  for (const batch of await log.unfinishedInserts()) {
    if (inFlight.has(batch.token)) continue;
    // The insert may still be running; end it first, so that it writes no rows after the repair has read the table.
    await endInserts(clickhouse, batch.token);
    await repairViews(clickhouse, batch.hours);
    await database.transaction(async (transaction) => {
      await markHoursDirty(transaction, batch.hours);
      await log.completeInsert(batch, transaction);
    });
  }
}
