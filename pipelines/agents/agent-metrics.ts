import { counter } from '../../infra/telemetry/metrics.ts';
import { scrapedGauge } from '../../infra/telemetry/scraped-gauge.ts';

export const runsEnded = counter(
  'runlake_agents_runs_total',
  'Runs of graphs that ended in this process, by status: success, error, timeout, interrupted.',
  ['status'],
);

export const unfinishedRuns = scrapedGauge(
  'runlake_agents_unfinished_runs',
  'Runs of graphs that are not finished, in all processes, by status: pending (those that are due later, too), running.',
  ['status'],
);

export const runSlots = scrapedGauge(
  'runlake_agents_run_slots',
  'How many runs of graphs this process has room for, by state: used, free. Processes that only answer have none.',
  ['state'],
);
