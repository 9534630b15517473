import type { Database } from '../../infra/postgres/pool.ts';
import { counter, histogram } from '../../infra/telemetry/metrics.ts';
import { scrapedGauge } from '../../infra/telemetry/scraped-gauge.ts';

export const rollUpSeconds = histogram(
  'runlake_usage_roll_up_seconds',
  'Duration of a usage roll-up run, by outcome: counted, idle (no dirty hours), busy (another process runs one), failed.',
  ['outcome'],
  [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100],
);

export const countedHours = counter(
  'runlake_usage_hours_counted_total',
  'Hours counted by the usage roll-up, one for each workspace and count.',
  [],
);

export const delaySeconds = histogram(
  'runlake_usage_delay_seconds',
  'Delay of the usage roll-up: time from the oldest dirty mark of a roll-up run until its hours are counted.',
  [],
  [0.1, 0.3, 0.5, 1, 2, 5, 10, 30, 60, 300, 1_800],
);

export const oldestDirtyHourAge = scrapedGauge(
  'runlake_usage_oldest_dirty_hour_age_seconds',
  'Age of the oldest dirty hour that is not counted yet; 0 if there is none.',
  [],
);

export const readReports = counter(
  'runlake_usage_reports_total',
  'Usage reports answered, by source: clickhouse, or memory if their counts had not changed.',
  ['source'],
);

/** Costs one index lookup. */
export async function ageOfOldestDirtyHour(database: Pick<Database, 'query'>): Promise<number> {
  const [oldest] = await database.query<{ seconds: number }>(
    `SELECT greatest(0, extract(epoch FROM clock_timestamp() - marked_at))::float8 AS seconds
     FROM usage_dirty_hours ORDER BY sequence LIMIT 1`,
  );
  return oldest?.seconds ?? 0;
}
