import { Type } from 'typebox';
import { bytes, count, MIB, optional, required, type Setting, text } from './setting.ts';

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;

/** Limits of bulk exports; where the service that clients know has a limit, its value is the default. */
export const exportSettings = {
  exportRunsAtOnce: required(
    'RUNLAKE_EXPORT_RUNS_AT_ONCE',
    count(1, 1_000),
    45,
    'Most runs of one bulk export that are worked on at once, over all processes.',
  ),
  exportsPerWorkspace: required(
    'RUNLAKE_EXPORTS_PER_WORKSPACE',
    count(1, 10_000),
    15,
    'Most bulk exports of one workspace that run at once; further ones wait as CREATED. Schedules do not count.',
  ),
  exportConcurrency: required(
    'RUNLAKE_EXPORT_CONCURRENCY',
    count(1, 64),
    2,
    'Runs of bulk exports that one process works on at once, and one more for an organisation that has none here; each has an encoder process of its own.',
  ),
  exportRetries: required(
    'RUNLAKE_EXPORT_RETRIES',
    count(0, 1_000),
    20,
    'How often a run of a bulk export is tried again before it has failed, and the export with it.',
  ),
  exportRetryDelayMs: required(
    'RUNLAKE_EXPORT_RETRY_DELAY_MS',
    count(0, hourMs),
    30_000,
    'Pause before a run of a bulk export is tried again, in milliseconds.',
  ),
  exportRunTimeoutMs: required(
    'RUNLAKE_EXPORT_RUN_TIMEOUT_MS',
    count(100, 7 * dayMs),
    4 * hourMs,
    'Longest time of one attempt at a run of a bulk export, in milliseconds.',
  ),
  exportTimeoutMs: required(
    'RUNLAKE_EXPORT_TIMEOUT_MS',
    count(100, 365 * dayMs),
    72 * hourMs,
    'Longest time of a bulk export from its start, in milliseconds.',
  ),
  exportScheduleDelayMs: required(
    'RUNLAKE_EXPORT_SCHEDULE_DELAY_MS',
    count(0, 7 * dayMs),
    600_000,
    'How long after the end of its interval a scheduled bulk export starts, in milliseconds.',
  ),
  exportClockSkewMs: required(
    'RUNLAKE_EXPORT_CLOCK_SKEW_MS',
    count(0, 600_000),
    1_000,
    'How far the clocks of processes may differ, in milliseconds: runs received so long after the request of a bulk export belong to it.',
  ),
  exportSweepMs: required(
    'RUNLAKE_EXPORT_SWEEP_MS',
    count(100, hourMs),
    5_000,
    'How often bulk exports are looked over for what is due, out of time, or missing in the queue, in milliseconds.',
  ),
  exportLeaseMs: required(
    'RUNLAKE_EXPORT_LEASE_MS',
    count(3_000, hourMs),
    15_000,
    'How long a worker that shows no sign of life keeps its run of a bulk export, in milliseconds.',
  ),
  exportMaxDays: required(
    'RUNLAKE_EXPORT_MAX_DAYS',
    count(1, 36_500),
    3_660,
    'Longest range of one bulk export, in days.',
  ),
  exportSliceRows: required(
    'RUNLAKE_EXPORT_SLICE_ROWS',
    count(1, 10_000_000),
    240_000,
    'Runs at which a bulk export begins another file.',
  ),
  exportSliceBytes: required(
    'RUNLAKE_EXPORT_SLICE_BYTES',
    bytes(64 * 1024 ** 3),
    256 * MIB,
    'Bytes of JSON at which a bulk export begins another file; the work folder holds a few times as much for each run that is worked on.',
  ),
  exportEncoderBytes: required(
    'RUNLAKE_EXPORT_ENCODER_BYTES',
    Type.Integer({ minimum: 64 * MIB, maximum: 64 * 1024 ** 3 }),
    256 * MIB,
    'Memory of the buffers of one encoder process, which takes some 200 MB beside it.',
  ),
  exportWorkDir: optional(
    'RUNLAKE_EXPORT_WORK_DIR',
    text,
    'Folder for files on their way to the bucket, of this machine alone. Unset: `exports` in the data folder.',
  ),
} as const satisfies Record<string, Setting>;
