import { count, required, type Setting } from './setting.ts';

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;

/**
 * Settings of bulk exports. If the service for which existing clients are written has the same limit, the default is
 * the value of that service.
 */
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
} as const satisfies Record<string, Setting>;
