import { setMaxListeners } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import { timedMs } from '../figures.ts';

const samples = 200;
const okEveryMs = 50;

/** One request of the quiet tenant, and the pause after it. */
export interface Part {
  readonly pauseMs: number;
  readonly maxSeconds: number;
  quiet(signal: AbortSignal): Promise<void>;
}

export interface Measured {
  /** Milliseconds of each sample. The last one may be unfinished; there is at least one. */
  readonly taken: readonly number[];
  /** Samples that completed. */
  readonly completed: number;
  /** Milliseconds of each call of `ok`. */
  readonly ok: readonly number[];
}

/** Times the requests of a part one after the other, and meanwhile `ok`. */
export async function measure({ pauseMs, maxSeconds, quiet }: Part, ok: () => Promise<void>): Promise<Measured> {
  const signal = AbortSignal.timeout(maxSeconds * 1_000);
  setMaxListeners(100_000, signal);
  const taken: number[] = [];
  const okTaken: number[] = [];
  let completed = 0;
  let over = false;
  const timingOk = (async () => {
    for (; !over; await pause(okEveryMs)) okTaken.push(await timedMs(ok));
  })();
  const once = async () => {
    try {
      await quiet(signal);
      completed += 1;
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  };
  try {
    // The first request opens the connections. It counts only if the time is over before it completes.
    const firstMs = await timedMs(once);
    if (signal.aborted) taken.push(firstMs);
    else completed = 0;
    while (taken.length < samples && !signal.aborted) {
      taken.push(await timedMs(once));
      await pause(pauseMs);
    }
  } finally {
    over = true;
    await timingOk;
  }
  return { taken, completed, ok: okTaken };
}
