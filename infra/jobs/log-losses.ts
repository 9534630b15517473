import type { Logger } from '../telemetry/logger.ts';

/** Minimum interval between two log lines about lost connections, because the clients report every failed reconnect. */
const logIntervalMs = 10_000;

const lossCodePattern = /^(?:E(?!RR_)[A-Z_]+|57P0[1-3]|08\w{3})$/;

/**
 * Creates a listener for connection errors of `store`. The listener logs lost connections as one line without a stack,
 * at most once in 10 s, with the number of suppressed errors in `leftOut`. The listener logs every other error
 * completely.
 */
export function logLosses(store: string, logger: Logger): (err: Error, job?: string) => void {
  let loggedAtMs = Number.NEGATIVE_INFINITY;
  let leftOut = 0;
  return (err, job) => {
    const reason = toLossCode(err);
    if (reason === undefined) {
      logger.warn({ err, job }, `error of the job queues in ${store}`);
      return;
    }
    const nowMs = performance.now();
    if (nowMs - loggedAtMs < logIntervalMs) {
      leftOut += 1;
      return;
    }
    logger.warn({ reason, leftOut }, `the job queues lost their connection to ${store} and are reconnecting`);
    loggedAtMs = nowMs;
    leftOut = 0;
  };
}

function toLossCode(err: Error & { code?: unknown }): string | undefined {
  if (typeof err.code === 'string' && lossCodePattern.test(err.code)) return err.code;
  // Errors that the clients create themselves have no code.
  return /connection is closed|connection terminated|connection ended/i.test(err.message) ? err.message : undefined;
}
