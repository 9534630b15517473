import { counter, scrapedGauge } from '../../infra/telemetry/metrics.ts';

export const runsEnded = counter(
  'runlake_agents_runs_total',
  'Graph runs that this process ended, by status: success, error, timeout, interrupted.',
  ['status'],
);

export const unfinishedRuns = scrapedGauge(
  'runlake_agents_unfinished_runs',
  'Unfinished graph runs of all processes, by status: pending (includes runs that are due later), running.',
  ['status'],
);

export const runSlots = scrapedGauge(
  'runlake_agents_run_slots',
  'Run slots of this process, by state: used, free. A process without workers has none.',
  ['state'],
);
