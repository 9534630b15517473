import type { Database } from '../../../infra/postgres/database.ts';
import { markEndsPublished } from '../runs/mark-ends-published.ts';
import type { EndedRun } from '../runs/run-row.ts';

/** Notes that the end of a run is in the log. @throws what the database throws. */
export type MarkEndPublished = (run: EndedRun) => Promise<void>;

/** Coalesces: ends of a deployment that arrive while a statement runs are marked together by the next one. */
export function markEndsTogether(database: Database, resumeMs: number): MarkEndPublished {
  let noting: Promise<void> = Promise.resolve();
  let next: { readonly runs: EndedRun[]; readonly noted: Promise<void> } | undefined;

  return async (run) => {
    if (next === undefined) {
      const runs: EndedRun[] = [];
      const noted = noting.then(async () => {
        next = undefined;
        await markEndsPublished(database, runs, resumeMs);
      });
      noting = noted.catch(() => undefined);
      next = { runs, noted };
    }
    next.runs.push(run);
    await next.noted;
  };
}
