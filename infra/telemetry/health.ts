import { isRunlakeError, runlakeError } from '../errors/runlake-error.ts';
import { timedOut, withTimeout } from '../timeouts/with-timeout.ts';

/** Health check of a part that the process depends on. */
export interface HealthCheck {
  /** Name in `/ready`: `clickhouse`, `postgres`, `event_log`, … */
  readonly name: string;
  /** Resolves if the part works; rejects with a RunlakeError if it does not. */
  check(): Promise<void>;
}

/** Health of a part of the service. `code`, `reason` and `remedy` describe the error if it is down. */
export interface ComponentHealth {
  readonly up: boolean;
  readonly latency_ms: number;
  readonly code?: string;
  readonly reason?: string;
  readonly remedy?: string;
}

/** Checks all parts concurrently. A part that does not respond within `timeoutMs` is reported as down. */
export async function checkHealth(
  checks: readonly HealthCheck[],
  timeoutMs = 2_000,
): Promise<Record<string, ComponentHealth>> {
  return Object.fromEntries(
    await Promise.all(checks.map(async (part) => [part.name, await checkPart(part, timeoutMs)])),
  );
}

async function checkPart(part: HealthCheck, timeoutMs: number): Promise<ComponentHealth> {
  const startedAtMs = performance.now();
  try {
    if ((await withTimeout(part.check(), timeoutMs)) === timedOut) {
      throw runlakeError('PART_SILENT', { part: part.name, limitMs: timeoutMs });
    }
    return { up: true, latency_ms: Math.round(performance.now() - startedAtMs) };
  } catch (raw) {
    const error = isRunlakeError(raw) ? raw : runlakeError('INTERNAL', {}, { cause: raw });
    return {
      up: false,
      latency_ms: Math.round(performance.now() - startedAtMs),
      code: error.code,
      reason: error.message,
      remedy: error.remedy,
    };
  }
}
