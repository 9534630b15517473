import { expect, it } from 'vitest';
import { generateTimeWindows } from '../../../pipelines/runs/page-slices.ts';
import { allTimes } from '../../../pipelines/runs/run-columns.ts';
import fc from '../../house/fast-check.ts';
import { noonMicros } from './run-events.ts';

const day = 86_400_000_000;

it('the first window of an open range ends in the future, the last begins at the minimum time', () => {
  const windows = [...generateTimeWindows(allTimes, 'desc', noonMicros)];
  expect(windows.length).toBe(5);
  expect(windows[0]).toEqual({ ...allTimes, fromMicros: noonMicros - day });
  expect(windows[1]).toEqual({ fromMicros: noonMicros - 9 * day, untilMicrosExclusive: noonMicros - day });
  expect(windows[4]?.fromMicros).toBe(0);
});

it('windows cover a range once, in order, at most five', () => {
  const micros = fc.integer({ min: 0, max: allTimes.untilMicrosExclusive });
  fc.assert(
    fc.property(micros, micros, micros, fc.constantFrom('asc' as const, 'desc' as const), (a, b, now, order) => {
      const range = { fromMicros: Math.min(a, b), untilMicrosExclusive: Math.max(a, b) };
      const windows = [...generateTimeWindows(range, order, now)];
      expect(windows.length).toBeLessThanOrEqual(5);
      const orderedWindows = order === 'asc' ? windows : [...windows].reverse();
      let at = range.fromMicros;
      for (const window of orderedWindows) {
        expect(window.fromMicros).toBe(at);
        expect(window.untilMicrosExclusive).toBeGreaterThan(at);
        at = window.untilMicrosExclusive;
      }
      expect(at).toBe(range.untilMicrosExclusive);
    }),
  );
});
