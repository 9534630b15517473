import type { ErrorCode } from '../../infra/errors/catalogue.ts';
import { counter, histogram } from '../../infra/telemetry/metrics.ts';

const durations = histogram(
  'runlake_http_request_duration_seconds',
  'Time from the arrival of a request to the end of its response, by operation and status.',
  ['operation', 'status'],
  [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60],
);

const errors = counter(
  'runlake_http_errors_total',
  'Requests that resulted in an error response, by operation and error code.',
  ['operation', 'code'],
);

/** Counts an error response. */
export function recordError(operation: string, code: ErrorCode): void {
  errors.inc({ operation, code });
}

/** Records one request. `status` is `aborted` if the client disconnects before the response is complete. */
export function recordRequest(operation: string, status: number | 'aborted', startedAtMs: number): void {
  durations.observe({ operation, status: String(status) }, (performance.now() - startedAtMs) / 1_000);
}
