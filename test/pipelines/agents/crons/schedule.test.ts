import { CronExpression } from 'cron-parser';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { readSchedule } from '../../../../pipelines/agents/crons/schedule.ts';

const at = (text: string) => Date.parse(text);
const timesAfter = (schedule: string, timezone: string | null, after: string, count: number) => {
  const times = readSchedule(schedule, timezone, at(after));
  const found: string[] = [];
  for (let last: number | undefined = at(after); found.length < count; ) {
    last = times.next(last);
    if (last === undefined) break;
    found.push(new Date(last).toISOString().replace(':00.000Z', 'Z'));
  }
  return found;
};

describe('readSchedule', () => {
  it.each([
    ['every minute', '* * * * *', null, '2026-04-22T00:00:30Z', ['2026-04-22T00:01Z', '2026-04-22T00:02Z']],
    ['strictly after', '0 9 * * *', null, '2026-04-22T09:00:00Z', ['2026-04-23T09:00Z']],
    [
      'local time of a time zone',
      '0 9 * * 1-5',
      'Asia/Kolkata',
      '2026-04-24T00:00:00Z',
      ['2026-04-24T03:30Z', '2026-04-27T03:30Z'],
    ],
    [
      'names of months and days, and extra blanks',
      ' 0  0 * JAN,jul mon ',
      null,
      '2026-07-21T00:00:00Z',
      ['2026-07-27T00:00Z', '2027-01-04T00:00Z'],
    ],
    [
      'day of month or day of week',
      '0 0 13 * 5',
      null,
      '2026-05-01T00:00:00Z',
      ['2026-05-08T00:00Z', '2026-05-13T00:00Z', '2026-05-15T00:00Z'],
    ],
    ['a leap day', '0 0 29 2 *', null, '2026-01-01T00:00:00Z', ['2028-02-29T00:00Z', '2032-02-29T00:00Z']],
    // New York skips 02:00 to 03:00 on 8 March 2026.
    [
      'a skipped time fires later',
      '30 2 * * *',
      'America/New_York',
      '2026-03-07T12:00:00Z',
      ['2026-03-08T07:30Z', '2026-03-09T06:30Z'],
    ],
    [
      'a skipped time that coincides with another fires once',
      '0 2,3 * * *',
      'America/New_York',
      '2026-03-08T06:00:00Z',
      ['2026-03-08T07:00Z', '2026-03-09T06:00Z'],
    ],
    [
      'each half hour across the gap',
      '*/30 * * * *',
      'America/New_York',
      '2026-03-08T06:15:00Z',
      ['2026-03-08T06:30Z', '2026-03-08T07:00Z', '2026-03-08T07:30Z', '2026-03-08T08:00Z'],
    ],
    // A gap that starts at midnight, and a gap of half an hour.
    [
      'a skipped midnight',
      '0 0 * * *',
      'Africa/Cairo',
      '2026-04-23T12:00:00Z',
      ['2026-04-23T22:00Z', '2026-04-24T21:00Z'],
    ],
    [
      'a skipped half hour',
      '15 2 * * *',
      'Australia/Lord_Howe',
      '2026-10-03T00:00:00Z',
      ['2026-10-03T15:45Z', '2026-10-04T15:15Z'],
    ],
    // New York repeats 01:00 to 02:00 on 1 November 2026.
    [
      'a repeated time fires once',
      '30 1 * * *',
      'America/New_York',
      '2026-10-31T12:00:00Z',
      ['2026-11-01T05:30Z', '2026-11-02T06:30Z'],
    ],
    [
      'a repeated time fires once, starting between the two',
      '30 1 * * *',
      'America/New_York',
      '2026-11-01T05:45:00Z',
      ['2026-11-02T06:30Z'],
    ],
    [
      'each half hour of a repeated hour',
      '*/30 * * * *',
      'America/New_York',
      '2026-11-01T04:45:00Z',
      ['2026-11-01T05:00Z', '2026-11-01T05:30Z', '2026-11-01T06:00Z', '2026-11-01T06:30Z', '2026-11-01T07:00Z'],
    ],
    [
      'a repeated half hour',
      '45 * * * *',
      'Australia/Lord_Howe',
      '2026-04-04T14:00:00Z',
      ['2026-04-04T14:45Z', '2026-04-04T15:15Z', '2026-04-04T16:15Z'],
    ],
  ])('finds the next times: %s', (_, schedule, timezone, after, expected) => {
    expect(timesAfter(schedule, timezone, after, expected.length)).toEqual(expected);
  });

  it.each([
    ['* * * *', 'has 4 fields'],
    ['0 * * * * *', 'has 6 fields'],
    ['', 'has 0 fields'],
    ['@daily', 'has 1 fields'],
    ['60 * * * *', '60'],
    ['*/0 * * * *', '0'],
    ['H * * * *', 'H is not'],
    ['often * * * *', ''],
    ['0 0 30 2 *', ''],
    ['0 0 31 4,6 *', 'no date'],
  ])('refuses %s', (schedule, reason) => {
    expect(() => readSchedule(schedule, null, at('2026-01-01'))).toThrow(
      expect.objectContaining({ code: 'CRON_SCHEDULE_INVALID', message: expect.stringContaining(reason) }),
    );
  });

  it.each(['0 0 31 2,4,6 *', '* * 30 2 *', '0 0 31 4,6,9,11 ?', '*/5 1-3 30,31 2 *'])(
    'refuses %s without a search for a date',
    (schedule) => {
      const searching = vi.spyOn(CronExpression.prototype, 'next');
      onTestFinished(() => searching.mockRestore());
      expect(() => readSchedule(schedule, 'Asia/Kolkata', at('2026-01-01'))).toThrow(
        expect.objectContaining({ code: 'CRON_SCHEDULE_INVALID' }),
      );
      expect(searching).not.toHaveBeenCalled();
    },
  );

  it.each([
    ['0 0 29,31 2 *', '2028-02-29T00:00Z'],
    ['0 0 L 2,4 *', '2027-02-28T00:00Z'],
    ['0 0 31 4,6 1', '2027-04-05T00:00Z'],
    ['0 0 31 4,5 *', '2027-05-31T00:00Z'],
  ])('accepts %s, which matches in some year', (schedule, expected) => {
    expect(timesAfter(schedule, null, '2026-12-31T00:00:00Z', 1)).toEqual([expected]);
  });

  it('keeps one format for all spellings of a time zone', () => {
    const names: string[] = [];
    const { DateTimeFormat } = Intl;
    class NamingFormat extends DateTimeFormat {
      constructor(locale: string, options: Intl.DateTimeFormatOptions = {}) {
        super(locale, options);
        names.push(String(options.timeZone));
      }
    }
    try {
      Intl.DateTimeFormat = NamingFormat as typeof DateTimeFormat;
      for (const zone of ['Pacific/Apia', 'pacific/apia', 'PACIFIC/APIA', 'pacific/Apia'])
        readSchedule('* * * * *', zone, at('2026-01-01'));
    } finally {
      Intl.DateTimeFormat = DateTimeFormat;
    }
    expect(names.filter((name) => /^pacific/i.test(name))).toHaveLength(1);
  });

  it.each(['Mars/Olympus', '+02:00', '', 'local', 'system', 'America/New_Yor\u212a'])(
    'refuses the time zone %j',
    (zone) => {
      expect(() => readSchedule('* * * * *', zone, 0)).toThrow(
        expect.objectContaining({ code: 'CRON_TIMEZONE_UNKNOWN' }),
      );
    },
  );

  it.each([
    ['* * * * *', '2020-01-01T00:00:00Z', '2026-04-22T10:15:30Z', '2026-04-22T10:15:00Z'],
    ['0 9 * * *', '2020-01-01T09:00:00Z', '2026-04-22T08:59:59Z', '2026-04-21T09:00:00Z'],
    ['0 0 1 * *', '2020-01-01T00:00:00Z', '2026-04-22T00:00:00Z', '2026-04-01T00:00:00Z'],
    ['0 0 29 2 *', '2020-02-29T00:00:00Z', '2026-04-22T00:00:00Z', '2024-02-29T00:00:00Z'],
    ['*/5 * * * *', '2026-04-22T10:15:00Z', '2026-04-22T10:19:59Z', '2026-04-22T10:15:00Z'],
    ['*/5 * * * *', '2026-04-22T10:15:00Z', '2026-04-22T10:20:00Z', '2026-04-22T10:20:00Z'],
  ])('finds the latest time of %s from %s to %s', (schedule, from, until, expected) => {
    const times = readSchedule(schedule, null, at(from) - 1);
    expect(new Date(times.latest(at(from), at(until))).toISOString()).toBe(new Date(expected).toISOString());
  });
});
