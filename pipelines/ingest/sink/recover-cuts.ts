import type { EventLog } from '../../../infra/event-log/event-log.ts';
import type { Database } from '../../../infra/postgres/pool.ts';
import { noteHours } from '../../usage/note-hours.ts';

/**
 * Notes the hours of cuts that were written down and not finished: their inserts may have happened, and counting an
 * hour once more is harmless. Cuts that are under way now are left alone.
 */
export async function recoverCuts(log: EventLog, database: Database, underWay: ReadonlySet<string>): Promise<void> {
  for (const cut of await log.unfinishedCuts()) {
    if (underWay.has(cut.token)) continue;
    await database.transaction(async (transaction) => {
      await noteHours(transaction, cut.hours);
      await log.finishCut(cut, transaction);
    });
  }
}
