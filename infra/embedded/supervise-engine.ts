/**
 * Keeps one engine running.
 *
 * Invariant: at most one incarnation of the engine runs at a time, and none after `stop` has resolved.
 *
 * 1. `launch` starts an incarnation and resolves when it answers; the first failure is the caller's.
 * 2. The incarnation's `exited` is awaited. If `stop` was asked for, that is the end.
 * 3. Otherwise wait (0.1 s, doubled after each failure up to 10 s) and launch again, which takes the same address, so that
 *    clients reconnect by themselves. An engine that ran for a minute starts again at 0.1 s.
 * 4. After 30 failed launches in a row (about four minutes) give up: `exited` says why.
 *
 * Beside step 2, the engine is asked at intervals whether it answers. After three failed probes in a row it is stopped, by
 * force if necessary, and step 3 follows. Probes are counted, not timed: a machine that was suspended fails one at most.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from '../telemetry/logger.ts';
import { counter } from '../telemetry/metrics.ts';

/** One process of an engine. */
export interface EngineProcess {
  /** Resolves with one line that says why, whenever the process has gone, for whatever cause. Never rejects. */
  readonly exited: Promise<string>;
  /** Ends it, gracefully at first, by force after a deadline. Resolves when it has gone. Never rejects. */
  stop(): Promise<void>;
  /** Whether the server answers; an error answer counts. Takes a few seconds at most, never rejects. Absent: not probed. */
  isAlive?(): Promise<boolean>;
}

/** How an engine ended for good: because it was told to, or because it could not be started again. */
export interface EngineExit {
  readonly expected: boolean;
  readonly reason: string;
}

export interface SupervisedEngine {
  readonly exited: Promise<EngineExit>;
  stop(): Promise<void>;
}

const firstDelayMs = 100;
const longestDelayMs = 10_000;
const healthyAfterMs = 60_000;
const mostFailures = 30;
const probeEveryMs = 5_000;
const maxFailedProbes = 3;

const restarts = counter(
  'runlake_engine_restarts_total',
  'Times an embedded engine ended by itself or did not answer and was started again, by engine: ClickHouse, Postgres.',
  ['engine'],
);

export async function superviseEngine(
  engine: string,
  launch: () => Promise<EngineProcess>,
  logger?: Logger,
  everyMs = probeEveryMs,
): Promise<SupervisedEngine> {
  const ending = new AbortController();
  let current = await launch();
  // From zero on, so that the first restart is a rise.
  restarts.inc({ engine }, 0);
  let startedAtMs = Date.now();
  let failures = 0;

  const restart = async (): Promise<EngineProcess | string> => {
    for (let reason = 'not started'; ; ) {
      if (failures >= mostFailures) return reason;
      const pauseMs = Math.min(firstDelayMs * 2 ** failures, longestDelayMs);
      failures += 1;
      try {
        await delay(pauseMs, undefined, { signal: ending.signal });
        return await launch();
      } catch (error) {
        reason = error instanceof Error ? error.message : String(error);
        if (ending.signal.aborted) return reason;
        logger?.error({ engine, failures, reason }, 'embedded engine did not start again');
      }
    }
  };

  /** Resolves with the reason when the process has gone: by itself, or stopped because it does not answer. */
  const endOf = async (incarnation: EngineProcess): Promise<string> => {
    const gone = new AbortController();
    const exited = incarnation.exited.finally(() => gone.abort());
    for (let failed = 0; incarnation.isAlive && !gone.signal.aborted; ) {
      await delay(everyMs, undefined, { signal: AbortSignal.any([gone.signal, ending.signal]) }).catch(() => {});
      if (ending.signal.aborted || gone.signal.aborted) break;
      const isAlive = await Promise.race([incarnation.isAlive(), exited.then(() => true)]);
      failed = isAlive ? 0 : failed + 1;
      if (failed < maxFailedProbes || ending.signal.aborted) continue;
      logger?.error({ engine, probes: failed }, 'embedded engine does not answer, stopping it');
      await incarnation.stop();
      return `${failed} liveness probes in a row failed`;
    }
    return exited;
  };

  const run = async (): Promise<EngineExit> => {
    for (;;) {
      const reason = await endOf(current);
      if (ending.signal.aborted) return { expected: true, reason: 'stopped' };
      logger?.error({ engine, reason }, 'embedded engine ended, starting it again');
      if (Date.now() - startedAtMs > healthyAfterMs) failures = 0;
      const next = await restart();
      if (typeof next === 'string') return { expected: ending.signal.aborted, reason: next };
      current = next;
      startedAtMs = Date.now();
      restarts.inc({ engine });
      // Asked to stop while it came up: nobody else knows this process yet.
      if (ending.signal.aborted) await current.stop();
      else logger?.info({ engine }, 'embedded engine runs again');
    }
  };

  const exited = run();
  return {
    exited,
    async stop() {
      ending.abort();
      await current.stop();
      await exited;
    },
  };
}
