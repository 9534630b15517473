import { Type } from 'typebox';
import { type FieldError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { UsageRange } from '../../../pipelines/usage/stride.ts';

/**
 * ISO 8601: a date, optionally with a time of any precision; `Z`, an offset, or no zone, which means UTC. A space
 * counts as the `+` of an offset, because an unescaped `+` in a query decodes to a space.
 */
const form = /^(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(\.\d{1,9})?)?(?:(Z)|([+ -])(\d\d):?(\d\d))?)?$/i;

/**
 * Returns milliseconds since 1970, with a fraction if the text is more precise; undefined if the text is not a valid time.
 */
export function parseUsageTime(text: string): number | undefined {
  const match = form.exec(text);
  if (!match) return undefined;
  const [year, month, day, hour, minute, second] = match.slice(1, 7).map((digits) => Number(digits ?? 0)) as Six;
  const [fraction = '', , sign = '+', offsetHours = 0, offsetMinutes = 0] = match.slice(7);
  const wholeMs = Date.UTC(year, month - 1, day, hour, minute, second);
  // `Date.UTC` converts a day that does not exist (30 February) to another day.
  if (new Date(wholeMs).toISOString().slice(0, 10) !== text.slice(0, 10)) return undefined;
  if (hour > 23 || minute > 59 || second > 59 || Number(offsetHours) > 15 || Number(offsetMinutes) > 59)
    return undefined;
  const offsetMs = (Number(offsetHours) * 60 + Number(offsetMinutes)) * 60_000;
  return wholeMs + Number(`0${fraction}`) * 1_000 + (sign === '-' ? offsetMs : -offsetMs);
}
type Six = [number, number, number, number, number, number];

export const UsageTime = (description: string) =>
  Type.Refine(
    Type.String({
      description: `${description} ISO 8601; UTC if it has no zone.`,
      examples: ['2026-01-05T00:00:00Z'],
    }),
    (text) => parseUsageTime(text) !== undefined,
    () => 'must be an ISO 8601 date and time, such as 2026-01-05T00:00:00Z',
  );

const earliestMs = Date.UTC(1970, 0, 1);
const latestMs = Date.UTC(2200, 0, 1);

/**
 * Returns the range between the validated times in the parameters `startName` and `endName`.
 * @throws INVALID_REQUEST with the invalid parameters.
 */
export function usageRange(query: Readonly<Record<string, unknown>>, startName: string, endName: string): UsageRange {
  const startMs = parseUsageTime(String(query[startName])) ?? Number.NaN;
  const endMs = parseUsageTime(String(query[endName])) ?? Number.NaN;
  const fields: FieldError[] = [];
  for (const [name, ms] of [
    [startName, startMs],
    [endName, endMs],
  ] as const) {
    if (ms >= earliestMs && ms <= latestMs) continue;
    fields.push({ loc: ['query', name], msg: 'must be between the years 1970 and 2200', type: 'out_of_range' });
  }
  if (fields.length === 0 && endMs <= startMs) {
    fields.push({ loc: ['query', endName], msg: `must be after ${startName}`, type: 'range_order' });
  }
  if (fields.length > 0) throw runlakeError('INVALID_REQUEST', {}, { fields });
  return { startMs, endMs };
}

/** Formats a whole second as in responses: `2026-01-05T00:00:00Z`. */
export function formatUsageTime(seconds: number): string {
  return `${new Date(seconds * 1_000).toISOString().slice(0, 19)}Z`;
}
