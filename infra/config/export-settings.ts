import { Type } from 'typebox';
import { bytes, count, MIB, optional, required, type Setting, text } from './setting.ts';

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;

/** Settings of bulk exports. If the service that existing clients know has the same limit, its value is the default. */
export const exportSettings = {
  exportRunsAtOnce: required(
    'RUNLAKE_EXPORT_RUNS_AT_ONCE',
    count(1, 1_000),
    45,
    'Maximum number of export runs of one bulk export that are processed concurrently, over all processes.',
  ),
  exportsPerWorkspace: required(
    'RUNLAKE_EXPORTS_PER_WORKSPACE',
    count(1, 10_000),
    15,
    'Maximum number of bulk exports that one workspace runs concurrently; further ones wait as CREATED. Schedules do not count.',
  ),
  exportConcurrency: required(
    'RUNLAKE_EXPORT_CONCURRENCY',
    count(1, 64),
    2,
    'Number of export runs that one process works on concurrently, plus one for an organisation that has none in this process; each uses its own encoder process.',
  ),
  exportRetries: required(
    'RUNLAKE_EXPORT_RETRIES',
    count(0, 1_000),
    20,
    'How often a failed export run is retried before it fails for good, and its bulk export with it.',
  ),
  exportRetryDelayMs: required(
    'RUNLAKE_EXPORT_RETRY_DELAY_MS',
    count(0, hourMs),
    30_000,
    'Delay before an export run is retried, in milliseconds.',
  ),
  exportRunTimeoutMs: required(
    'RUNLAKE_EXPORT_RUN_TIMEOUT_MS',
    count(100, 7 * dayMs),
    4 * hourMs,
    'Timeout of one attempt of an export run, in milliseconds.',
  ),
  exportTimeoutMs: required(
    'RUNLAKE_EXPORT_TIMEOUT_MS',
    count(100, 365 * dayMs),
    72 * hourMs,
    'Timeout of a bulk export from its start, in milliseconds.',
  ),
  exportScheduleDelayMs: required(
    'RUNLAKE_EXPORT_SCHEDULE_DELAY_MS',
    count(0, 7 * dayMs),
    600_000,
    'Delay between the end of an interval and the start of its scheduled bulk export, in milliseconds.',
  ),
  exportClockSkewMs: required(
    'RUNLAKE_EXPORT_CLOCK_SKEW_MS',
    count(0, 600_000),
    1_000,
    'Maximum clock difference between processes, in milliseconds: a bulk export includes runs that are received up to this long after its request.',
  ),
  exportSweepMs: required(
    'RUNLAKE_EXPORT_SWEEP_MS',
    count(100, hourMs),
    5_000,
    'Interval at which bulk exports are checked for due schedules, timeouts and missing jobs, in milliseconds.',
  ),
  exportLeaseMs: required(
    'RUNLAKE_EXPORT_LEASE_MS',
    count(3_000, hourMs),
    15_000,
    'Lease duration of an export run, in milliseconds: a worker without heartbeats for this long loses it.',
  ),
  exportMaxDays: required(
    'RUNLAKE_EXPORT_MAX_DAYS',
    count(1, 36_500),
    3_660,
    'Maximum time range of one bulk export, in days.',
  ),
  exportSliceRows: required(
    'RUNLAKE_EXPORT_SLICE_ROWS',
    count(1, 10_000_000),
    240_000,
    'Number of runs after which a bulk export starts another file.',
  ),
  exportSliceBytes: required(
    'RUNLAKE_EXPORT_SLICE_BYTES',
    bytes(64 * 1024 ** 3),
    256 * MIB,
    'Size of JSON after which a bulk export starts another file. The work folder needs a few times this size for each concurrent export run.',
  ),
  exportEncoderBytes: required(
    'RUNLAKE_EXPORT_ENCODER_BYTES',
    Type.Integer({ minimum: 64 * MIB, maximum: 64 * 1024 ** 3 }),
    256 * MIB,
    'Memory limit of the buffers of one encoder process, which needs about 200 MB on top.',
  ),
  exportWorkDir: optional(
    'RUNLAKE_EXPORT_WORK_DIR',
    text,
    'Local folder for export files before their upload; must not be shared with other machines. Unset: `exports` in the data folder.',
  ),
} as const satisfies Record<string, Setting>;
