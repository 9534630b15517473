import type { Database } from '../../../infra/postgres/database.ts';
import { markEndsPublished } from '../runs/mark-ends-published.ts';
import type { EndedRun } from '../runs/run-row.ts';

/** Records in Postgres that the end of a run is published. @throws errors of the database. */
export type MarkEndPublished = (run: EndedRun) => Promise<void>;

/** Coalesces calls: ends that arrive while a statement executes are marked together by the next statement. */
export function markEndsTogether(database: Database, resumeMs: number): MarkEndPublished {
  let running: Promise<void> = Promise.resolve();
  let next: { readonly runs: EndedRun[]; readonly marked: Promise<void> } | undefined;

  return async (run) => {
    if (next === undefined) {
      const runs: EndedRun[] = [];
      const marked = running.then(async () => {
        next = undefined;
        await markEndsPublished(database, runs, resumeMs);
      });
      running = marked.catch(() => undefined);
      next = { runs, marked };
    }
    next.runs.push(run);
    await next.marked;
  };
}
