import { counter, histogram } from '../../infra/telemetry/metrics.ts';
import { scrapedGauge } from '../../infra/telemetry/scraped-gauge.ts';

export const exportedRows = counter('runlake_export_rows_total', 'Runs in files that bulk exports have recorded.', []);

export const exportedBytes = counter(
  'runlake_export_bytes_total',
  'Bytes of files that bulk exports have recorded.',
  [],
);

export const attemptsEnded = counter(
  'runlake_export_attempts_total',
  'Attempts at runs of bulk exports that ended here, by how: completed, retried, failed, over (cancelled, timed out, or taken up by another worker), released (this process stops).',
  ['end'],
);

export const stageSeconds = histogram(
  'runlake_export_stage_seconds',
  'Time of one slice in each stage of a bulk export: find, read, encode, upload. The stages of successive slices overlap.',
  ['stage'],
  [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300],
);

export const unfinishedExports = scrapedGauge(
  'runlake_export_unfinished',
  'Bulk exports that are not finished, by status; schedules do not count.',
  ['status'],
);
