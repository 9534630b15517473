import { counter, histogram, scrapedGauge } from '../../infra/telemetry/metrics.ts';

export const exportedRows = counter(
  'runlake_export_rows_total',
  'Runs in the files that bulk exports have recorded.',
  [],
);

export const exportedBytes = counter(
  'runlake_export_bytes_total',
  'Bytes of files that bulk exports have recorded.',
  [],
);

export const attemptsEnded = counter(
  'runlake_export_attempts_total',
  'Attempts at bulk export runs that ended in this process, by outcome: completed, retried, failed, over (cancelled, timed out, or claimed by another worker), released (this process stops).',
  ['end'],
);

export const stageSeconds = histogram(
  'runlake_export_stage_seconds',
  'Duration of each stage of a bulk export for one slice: find, read, encode, upload. The stages of successive slices overlap.',
  ['stage'],
  [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300],
);

export const unfinishedExports = scrapedGauge(
  'runlake_export_unfinished',
  'Unfinished bulk exports by status, without schedules.',
  ['status'],
);
