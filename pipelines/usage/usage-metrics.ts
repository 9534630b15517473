import type { Database } from '../../infra/postgres/pool.ts';
import { counter, histogram } from '../../infra/telemetry/metrics.ts';
import { scrapedGauge } from '../../infra/telemetry/scraped-gauge.ts';

export const passSeconds = histogram(
  'runlake_usage_pass_seconds',
  'Time of a pass of the usage roll-up, by outcome: counted, idle (nothing was noted), busy (another process), failed.',
  ['outcome'],
  [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100],
);

export const countedHours = counter(
  'runlake_usage_hours_counted_total',
  'Hours of workspaces that were counted, again or for the first time.',
  [],
);

export const delaySeconds = histogram(
  'runlake_usage_delay_seconds',
  'Delay of the usage roll-up: time from the oldest note of a pass until its hours were counted.',
  [],
  [0.1, 0.3, 0.5, 1, 2, 5, 10, 30, 60, 300, 1_800],
);

export const oldestNoteAge = scrapedGauge(
  'runlake_usage_oldest_note_age_seconds',
  'How long the oldest note waits for its hour to be counted; 0 where none waits.',
  [],
);

export const readReports = counter(
  'runlake_usage_reports_total',
  'Usage reports that were answered, by source: clickhouse, or memory where nothing of them had changed.',
  ['source'],
);

/** One look at an index. */
export async function ageOfOldestNote(database: Pick<Database, 'query'>): Promise<number> {
  const [oldest] = await database.query<{ seconds: number }>(
    `SELECT greatest(0, extract(epoch FROM clock_timestamp() - noted_at))::float8 AS seconds
     FROM usage_notes ORDER BY sequence LIMIT 1`,
  );
  return oldest?.seconds ?? 0;
}
