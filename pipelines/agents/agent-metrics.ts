import type { Sql } from '../../infra/postgres/database.ts';
import { counter, scrapedGauge } from '../../infra/telemetry/metrics.ts';
import { countUnfinishedRuns } from './runs/read-run.ts';
import type { WorkerPool } from './workers/front/worker-pool.ts';

export const runsEnded = counter(
  'runlake_agents_runs_total',
  'Graph runs that this process ended, by status: success, error, timeout, interrupted.',
  ['status'],
);

const unfinishedRuns = scrapedGauge(
  'runlake_agents_unfinished_runs',
  'Unfinished graph runs of all processes, by status: pending (includes runs that are due later), running.',
  ['status'],
);

const runSlots = scrapedGauge(
  'runlake_agents_run_slots',
  'Run slots of this process, by state: used, free. A process without workers has none.',
  ['state'],
);

/** Starts to report unfinished runs and run slots in the metrics. @returns a function that stops the reporting. */
export function reportAgentMetrics(deps: {
  readonly database: Sql;
  readonly deploymentId: string;
  readonly executor: { readonly running: number };
  readonly pool: Pick<WorkerPool, 'freeSlots'>;
}): () => void {
  const { database, deploymentId, executor, pool } = deps;
  const removeRunsReader = unfinishedRuns.setReader(async () => {
    const counts = await countUnfinishedRuns(database, deploymentId);
    return Object.entries(counts).map(([status, value]) => ({ labels: { status }, value }));
  });
  const removeSlotsReader = runSlots.setReader(
    () => [
      { labels: { state: 'used' }, value: executor.running },
      { labels: { state: 'free' }, value: pool.freeSlots },
    ],
    0,
  );
  return () => {
    removeRunsReader();
    removeSlotsReader();
  };
}
