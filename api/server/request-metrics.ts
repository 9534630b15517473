import type { ErrorCode } from '../../infra/errors/catalogue.ts';
import { counter, histogram } from '../../infra/telemetry/metrics.ts';

const durations = histogram(
  'runlake_http_request_duration_seconds',
  'Time from the arrival of a request to the end of its answer, by operation and status.',
  ['operation', 'status'],
  [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60],
);

const errors = counter(
  'runlake_http_errors_total',
  'Requests that were answered with an error, by operation and error code.',
  ['operation', 'code'],
);

/** Notes an answer that is an error. */
export function noteError(operation: string, code: ErrorCode): void {
  errors.inc({ operation, code });
}

/** Notes one request. `status` is `aborted` where the client left before the answer was complete. */
export function noteRequest(operation: string, status: number | 'aborted', startedAtMs: number): void {
  durations.observe({ operation, status: String(status) }, (performance.now() - startedAtMs) / 1_000);
}
