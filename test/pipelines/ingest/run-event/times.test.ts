import { describe, expect, it } from 'vitest';
import { formatTime, formatTimeWithZone, parseTime } from '../../../../pipelines/ingest/run-event/times.ts';
import fc from '../../../house/fast-check.ts';

const noon = Date.UTC(2026, 1, 28, 12, 30, 45) * 1_000;

describe('parseTime', () => {
  it.each<[string, string | number, number]>([
    ['six digits and Z', '2026-02-28T12:30:45.123456Z', noon + 123_456],
    ['no fraction', '2026-02-28T12:30:45Z', noon],
    ['three digits', '2026-02-28T12:30:45.123Z', noon + 123_000],
    ['one digit', '2026-02-28T12:30:45.1', noon + 100_000],
    ['nine digits, truncated', '2026-02-28T12:30:45.123456999Z', noon + 123_456],
    ['a fraction of zeros', '2026-02-28T12:30:45.000000Z', noon],
    ['a comma', '2026-02-28T12:30:45,5Z', noon + 500_000],
    ['no zone', '2026-02-28T12:30:45.123456', noon + 123_456],
    ['small letters', '2026-02-28t12:30:45z', noon],
    ['a space', '2026-02-28 12:30:45.123456', noon + 123_456],
    ['a space before the zone', '2026-02-28 14:30:45 +02:00', noon],
    ['an offset', '2026-02-28T14:30:45.123456+02:00', noon + 123_456],
    ['an offset without colon', '2026-02-28T07:00:45-0530', noon],
    ['an offset of hours', '2026-02-28T14:30:45+02', noon],
    ['an offset into the next day', '2026-03-01T00:30:45+12:00', noon],
    ['minutes only', '2026-02-28T12:30Z', noon - 45_000_000],
    ['a date', '2026-02-28', Date.UTC(2026, 1, 28) * 1_000],
    ['a leap day', '2024-02-29T00:00:00Z', Date.UTC(2024, 1, 29) * 1_000],
    ['the leap day of 2000', '2000-02-29T00:00:00Z', Date.UTC(2000, 1, 29) * 1_000],
    ['before 1970', '1969-12-31T23:59:59.999999Z', -1],
    ['the minimum time', '0001-01-01T00:00:00Z', -62_135_596_800_000_000],
    ['the maximum time, to the precision of a double', '9999-12-31T23:59:59.999999Z', 253_402_300_799_999_970],
    ['the last minute, with an offset', '9999-12-31T22:59-01:00', 253_402_300_740_000_000],
    ['milliseconds', 1_772_281_845_123, 1_772_281_845_123_000],
    ['zero', 0, 0],
    ['negative milliseconds', -1, -1_000],
  ])('parses %s', (_, value, micros) => {
    expect(parseTime(value)).toBe(micros);
  });

  it.each<string | number>([
    '',
    'now',
    '9999-12-31T23:00:00-01:00',
    '0001-01-01T00:59:00+01:00',
    '2026',
    '2026-02',
    '2026-2-28T12:30:45Z',
    '20260228T123045Z',
    '02/28/2026',
    '2026-02-30T00:00:00Z',
    '2026-02-29T00:00:00Z',
    '1900-02-29T00:00:00Z',
    '2026-04-31',
    '2026-00-01',
    '2026-13-01',
    '2026-01-00',
    '2026-01-32',
    '0000-01-01T00:00:00Z',
    '+2026-02-28T12:30:45Z',
    '12026-02-28T12:30:45Z',
    '2026-02-28T',
    '2026-02-28T12',
    '2026-02-28T12:3',
    '2026-02-28T24:00:00Z',
    '2026-02-28T12:60:00Z',
    '2026-02-28T12:30:60Z',
    '2016-12-31T23:59:60Z',
    '2026-02-28T12:30:4Z',
    '2026-02-28T12:30:45.Z',
    '2026-02-28T12:30:45.1234567890Z',
    '2026-02-28T12:30:45.12a',
    '2026-02-28T12:30:45 ',
    '2026-02-28T12:30:45ZZ',
    '2026-02-28T12:30:45UTC',
    '2026-02-28T12:30:45+2',
    '2026-02-28T12:30:45+24:00',
    '2026-02-28T12:30:45+02:60',
    '2026-02-28T12:30:45+02:',
    '2026-02-28T12:30:45+02-00',
    '2026-02-28T12:30:45+02:00:00',
    '2026-02-28T12:30:45Z\n',
    ' 2026-02-28T12:30:45Z',
    '２０２６-02-28T12:30:45Z',
    '1772281845123',
    0.5,
    Number.NaN,
    Number.POSITIVE_INFINITY,
    -62_135_596_800_001,
    253_402_300_800_000,
  ])('refuses %j', (value) => {
    expect(parseTime(value)).toBeUndefined();
  });

  it('agrees with Date on every day of four centuries, and refuses every day that does not exist', () => {
    for (let year = 1_800; year < 2_200; year++) {
      for (let month = 1; month <= 12; month++) {
        for (let day = 28; day <= 31; day++) {
          const text = `${year}-${String(month).padStart(2, '0')}-${day}`;
          const date = new Date(`${text}T00:00:00Z`);
          const isThere = date.getUTCDate() === day;
          expect(parseTime(text), text).toBe(isThere ? date.getTime() * 1_000 : undefined);
        }
      }
    }
  });
});

describe('formatTime', () => {
  it.each<[number, string]>([
    [0, '1970-01-01T00:00:00.000000'],
    [1, '1970-01-01T00:00:00.000001'],
    [-1, '1969-12-31T23:59:59.999999'],
    [noon + 9_080, '2026-02-28T12:30:45.009080'],
    [Date.UTC(2024, 1, 29, 23, 59, 59, 999) * 1_000 + 999, '2024-02-29T23:59:59.999999'],
    [-62_135_596_800_000_000, '0001-01-01T00:00:00.000000'],
    [253_402_300_799_000_000, '9999-12-31T23:59:59.000000'],
    [parseTime('9999-12-31T23:59:59.999999Z') ?? 0, '9999-12-31T23:59:59.999968'],
  ])('formats %d', (micros, text) => {
    expect(formatTime(micros)).toBe(text);
    expect(formatTimeWithZone(micros)).toBe(`${text}+00:00`);
  });

  it('equals the output of Date, and parseTime parses it back', () => {
    const years = fc.integer({ min: Date.UTC(1690, 0), max: Date.UTC(2250, 0) });
    fc.assert(
      fc.property(years, fc.integer({ min: 0, max: 999 }), (milliseconds, rest) => {
        const micros = milliseconds * 1_000 + rest;
        const text = formatTime(micros);
        expect(text).toBe(`${new Date(milliseconds).toISOString().slice(0, -1)}${String(rest).padStart(3, '0')}`);
        expect(parseTime(text)).toBe(micros);
        expect(parseTime(`${text}Z`)).toBe(micros);
        expect(parseTime(formatTimeWithZone(micros))).toBe(micros);
      }),
      { numRuns: 2_000 },
    );
  });

  it('works from the year 1 to the year 9999', () => {
    fc.assert(
      fc.property(fc.integer({ min: -62_135_596_800, max: 253_402_300_799 }), (seconds) => {
        expect(formatTime(seconds * 1_000_000)).toBe(`${new Date(seconds * 1_000).toISOString().slice(0, 19)}.000000`);
      }),
      { numRuns: 2_000 },
    );
  });
});
