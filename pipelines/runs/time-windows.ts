import type { Order, TimeWindow } from './run-key.ts';

const dayMicros = 86_400_000_000;

/** Width of each window except the last, which takes the rest: at most five windows cover all times. */
const widthsMicros = [1, 8, 64, 512].map((days) => days * dayMicros);

/**
 * Divides `range` into consecutive windows in `order`, each wider than the one before. This bounds both the work of one
 * query and the number of queries.
 *
 * @param nowMicros For newest first, the window widths are measured from this time if the range is open; the first
 *   window also contains later times.
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
