import { endInserts } from '../../../infra/clickhouse/end-inserts.ts';
import type { Warehouse } from '../../../infra/clickhouse/warehouse.ts';
import type { EventLog } from '../../../infra/event-log/event-log.ts';
import type { Database } from '../../../infra/postgres/pool.ts';
import { noteHours } from '../../usage/note-hours.ts';
import { repairViews } from './repair-views.ts';

export interface RecoverPorts {
  readonly log: EventLog;
  readonly warehouse: Warehouse;
  readonly database: Database;
}

/**
 * Completes cuts that were written down and not finished: their inserts may have happened, or reached `runs` and not the
 * views on it. Their hours are noted, because counting one once more is harmless. Cuts that are under way now are left alone.
 */
export async function recoverCuts(
  { log, warehouse, database }: RecoverPorts,
  underWay: ReadonlySet<string>,
): Promise<void> {
  for (const cut of await log.unfinishedCuts()) {
    if (underWay.has(cut.token)) continue;
    // It may still run: rows that it writes after the look at them would be missed.
    await endInserts(warehouse, cut.token);
    await repairViews(warehouse, cut.hours);
    await database.transaction(async (transaction) => {
      await noteHours(transaction, cut.hours);
      await log.finishCut(cut, transaction);
    });
  }
}
