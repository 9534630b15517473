import { describe, expect, it } from 'vitest';
import { dayWindows } from '../../../pipelines/exports/coordinate-export.ts';

const at = (text: string) => `${text}Z`;

describe('the days of a range', () => {
  it.each([
    ['a day', '2026-03-05T00:00:00.000000', '2026-03-06T00:00:00.000000', 1],
    ['within a day', '2026-03-05T10:00:00.000001', '2026-03-05T10:00:00.000002', 1],
    ['across midnight', '2026-03-05T23:59:59.999999', '2026-03-06T00:00:00.000001', 2],
    ['up to midnight', '2026-03-05T12:00:00.000000', '2026-03-06T00:00:00.000000', 1],
    ['leap day', '2024-02-28T12:00:00.000000', '2024-03-01T12:00:00.000000', 3],
    ['no leap day', '2026-02-28T12:00:00.000000', '2026-03-01T12:00:00.000000', 2],
    ['a year with both daylight-saving changes', '2026-01-01T00:00:00.000000', '2027-01-01T00:00:00.000000', 365],
    ['the end of time, but nothing before 1970', '2259-12-31T00:00:00.000000', '2260-01-01T00:00:00.000000', 1],
  ])('%s', (_name, start, end, days) => {
    const windows = dayWindows(at(start), at(end));
    expect(windows).toHaveLength(days);
    expect(windows[0]?.start).toBe(at(start));
    expect(windows.at(-1)?.end).toBe(at(end));
    for (const [index, window] of windows.entries()) {
      // They are contiguous, and each lies within one day.
      expect(window.start).toBe(windows[index - 1]?.end ?? at(start));
      expect(window.start < window.end).toBe(true);
      const midnight = new Date(Date.parse(`${window.start.slice(0, 10)}T00:00:00Z`) + 86_400_000).toISOString();
      expect(window.end.slice(0, 19) <= midnight.slice(0, 19)).toBe(true);
      if (index > 0) expect(window.start).toMatch(/T00:00:00\.000000Z$/);
    }
  });
});
