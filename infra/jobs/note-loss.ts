import type { Logger } from '../telemetry/logger.ts';

/** Clients of a store that is gone report every attempt to reach it again: one line in this time says as much. */
const noteEveryMs = 10_000;

const lossCodes = /^(?:E(?!RR_)[A-Z_]+|57P0[1-3]|08\w{3})$/;

/**
 * Makes a listener for errors of connections to `store`. Losses are logged as one line without a stack, at most once in 10 s,
 * with how many were left out since; every other error is logged whole.
 */
export function noteLosses(store: string, logger: Logger): (err: Error, job?: string) => void {
  let notedAtMs = Number.NEGATIVE_INFINITY;
  let leftOut = 0;
  return (err, job) => {
    const reason = lossOf(err);
    if (reason === undefined) {
      logger.warn({ err, job }, `an error of the job queues in ${store}`);
      return;
    }
    const nowMs = performance.now();
    if (nowMs - notedAtMs < noteEveryMs) {
      leftOut += 1;
      return;
    }
    logger.warn({ reason, leftOut }, `the job queues lost ${store}, and try to reach it again`);
    notedAtMs = nowMs;
    leftOut = 0;
  };
}

function lossOf(err: Error & { code?: unknown }): string | undefined {
  if (typeof err.code === 'string' && lossCodes.test(err.code)) return err.code;
  // The clients' own words carry no code.
  return /connection is closed|connection terminated|connection ended/i.test(err.message) ? err.message : undefined;
}
