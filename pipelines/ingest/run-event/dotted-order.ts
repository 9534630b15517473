import { daysSince1970, formatTime } from './times.ts';
import { parseUuid } from './uuid.ts';

/**
 * `dotted_order`: one segment for each run from the root down, joined by dots. A segment is the run's start time as
 * `YYYYMMDDTHHMMSSffffffZ` and its id. Text order is the order of the trace. Source: the public run format.
 */
export interface DottedOrder {
  /** As it is stored: ids in lower case. */
  readonly text: string;
  readonly runId: string;
  readonly traceId: string;
  /** Absent for a root. */
  readonly parentId: string | undefined;
  readonly runTimeMicros: number;
  readonly traceTimeMicros: number;
}

/** Deeper than any real trace, and short enough to bound a stored line. */
const maxSegments = 1_000;

const timeCharacters = 22;
const segmentCharacters = timeCharacters + 36;

/** The parsed order, or the reason why `text` is none. */
export function parseDottedOrder(text: string): DottedOrder | { readonly reason: string } {
  const segments = (text.length + 1) / (segmentCharacters + 1);
  if (!Number.isInteger(segments)) {
    return { reason: `has ${text.length} characters; segments of ${segmentCharacters}, joined by dots, were expected` };
  }
  if (segments > maxSegments) return { reason: `has more than ${maxSegments} segments` };
  let traceId = '';
  let traceTimeMicros = 0;
  let parentId: string | undefined;
  let runId = '';
  let runTimeMicros = 0;
  for (let index = 0; index < segments; index++) {
    const at = index * (segmentCharacters + 1);
    if (index > 0 && text[at - 1] !== '.') return { reason: `has no dot before segment ${index + 1}` };
    const micros = segmentTime(text, at);
    if (micros === undefined) return { reason: `has no time YYYYMMDDTHHMMSSffffffZ in segment ${index + 1}` };
    const id = parseUuid(text.slice(at + timeCharacters, at + segmentCharacters));
    if (id === undefined) return { reason: `has no UUID in segment ${index + 1}` };
    parentId = index > 0 ? runId : undefined;
    runId = id;
    runTimeMicros = micros;
    if (index === 0) {
      traceId = id;
      traceTimeMicros = micros;
    }
  }
  return { text: lowerCaseIds(text, segments), runId, traceId, parentId, runTimeMicros, traceTimeMicros };
}

/** One segment, for a run that came without a dotted order. */
export function formatDottedOrderSegment(micros: number, id: string): string {
  return `${formatTime(micros).replace(/[-:.]/g, '')}Z${id}`;
}

const capital = /[A-F]/;

function lowerCaseIds(text: string, segments: number): string {
  if (!capital.test(text)) return text;
  const parts = text.split('.').slice(0, segments);
  return parts.map((part) => part.slice(0, timeCharacters) + part.slice(timeCharacters).toLowerCase()).join('.');
}

/** Days of recent dates: the segments of a batch lie on few of them. */
const knownDays = new Map<number, number | undefined>();

function segmentTime(text: string, at: number): number | undefined {
  const date = digits(text, at, 8);
  const clock = digits(text, at + 9, 6);
  const micros = digits(text, at + 15, 6);
  if (date < 0 || clock < 0 || micros < 0 || text[at + 8] !== 'T' || text[at + 21] !== 'Z') return undefined;
  const days = daysOf(date);
  const hour = Math.floor(clock / 10_000);
  const minute = Math.floor(clock / 100) % 100;
  const second = clock % 100;
  if (days === undefined || hour > 23 || minute > 59 || second > 59) return undefined;
  return (days * 86_400 + hour * 3_600 + minute * 60 + second) * 1_000_000 + micros;
}

function daysOf(date: number): number | undefined {
  if (knownDays.has(date)) return knownDays.get(date);
  if (knownDays.size >= 10_000) knownDays.clear();
  const days = daysSince1970(Math.floor(date / 10_000), Math.floor(date / 100) % 100, date % 100);
  knownDays.set(date, days);
  return days;
}

/** `count` decimal digits as a number; -1 where one is none. */
function digits(text: string, at: number, count: number): number {
  let value = 0;
  for (let index = at; index < at + count; index++) {
    const digit = text.charCodeAt(index) - 0x30;
    if (!(digit >= 0 && digit <= 9)) return -1;
    value = value * 10 + digit;
  }
  return value;
}
