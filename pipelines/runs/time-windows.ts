import type { Order, TimeWindow } from './run-key.ts';

const dayMicros = 86_400_000_000;

/** Width of each window but the last, which takes the rest: at most five windows cover all of time. */
const widthsMicros = [1, 8, 64, 512].map((days) => days * dayMicros);

/**
 * Cuts `range` into windows that follow each other in `order`, each wider than the one before, beginning at the end where
 * reading begins. Windows bound what one query can meet; the number of windows is bounded too.
 *
 * @param nowMicros where an open end counts as lying: newest first, the first window also takes what lies ahead of it.
 */
export function* timeWindows(range: TimeWindow, order: Order, nowMicros: number): Generator<TimeWindow> {
  let { fromMicros, untilMicrosExclusive } = range;
  let edge = order === 'desc' ? Math.min(untilMicrosExclusive, nowMicros) : fromMicros;
  for (const width of [...widthsMicros, Number.POSITIVE_INFINITY]) {
    if (fromMicros >= untilMicrosExclusive) return;
    if (order === 'desc') {
      edge = Math.max(fromMicros, edge - width);
      yield { fromMicros: edge, untilMicrosExclusive };
      untilMicrosExclusive = edge;
    } else {
      edge = Math.min(untilMicrosExclusive, edge + width);
      yield { fromMicros, untilMicrosExclusive: edge };
      fromMicros = edge;
    }
  }
}
