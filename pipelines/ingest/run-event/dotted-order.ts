import { countDaysSince1970, formatTime, parseDigits } from './times.ts';
import { readUuidForm } from './uuid.ts';

/**
 * A parsed `dotted_order`: one segment for each run from the root down, joined by dots. A segment is the run's start
 * time as `YYYYMMDDTHHMMSSffffffZ` and its id. Sorting runs by the text gives the order of the trace. Source: the
 * public run format.
 */
export interface DottedOrder {
  /** The text to store, with ids in lower case. */
  readonly text: string;
  readonly runId: string;
  readonly traceId: string;
  /** Id of the parent run; undefined for a root run. */
  readonly parentId: string | undefined;
  readonly runTimeMicros: number;
  readonly traceTimeMicros: number;
}

/** Maximum number of segments. It is higher than in any real trace, and low enough to bound the stored text. */
const maxSegments = 1_000;

const timeCharacters = 22;
const segmentCharacters = timeCharacters + 36;
/** Number of characters from one segment to the next, including the dot. */
const stepCharacters = segmentCharacters + 1;

/** Parses `text`; returns the reason if the text is not a dotted_order. */
export function parseDottedOrder(text: string): DottedOrder | { readonly reason: string } {
  if (text === '') return { reason: 'is empty' };
  if (text.length >= maxSegments * stepCharacters) return { reason: `has more than ${maxSegments} segments` };
  let traceTimeMicros = 0;
  let runTimeMicros = 0;
  let hasCapitals = false;
  let last = 0;
  for (let at = 0; ; at += stepCharacters) {
    const number = at / stepCharacters + 1;
    const dot = text.indexOf('.', at);
    const length = (dot < 0 ? text.length : dot) - at;
    if (length !== segmentCharacters) {
      return {
        reason: `has ${length} characters in segment ${number}, where a time YYYYMMDDTHHMMSSffffffZ and a UUID have ${segmentCharacters}`,
      };
    }
    const micros = readTimeAt(text, at);
    if (micros === undefined) return { reason: `has no time YYYYMMDDTHHMMSSffffffZ in segment ${number}` };
    const form = readUuidForm(text, at + timeCharacters);
    if (form === undefined) return { reason: `has no UUID in segment ${number}` };
    hasCapitals ||= form === 'capitals';
    runTimeMicros = micros;
    if (at === 0) traceTimeMicros = micros;
    last = at;
    if (dot < 0) break;
  }
  const stored = hasCapitals ? lowercaseIds(text) : text;
  return {
    text: stored,
    runId: readIdAt(stored, last),
    traceId: readIdAt(stored, 0),
    parentId: last > 0 ? readIdAt(stored, last - stepCharacters) : undefined,
    runTimeMicros,
    traceTimeMicros,
  };
}

/** Formats one segment, for a run that was received without a dotted_order. */
export function formatDottedOrderSegment(micros: number, id: string): string {
  const time = formatTime(micros);
  const date = `${time.slice(0, 4)}${time.slice(5, 7)}${time.slice(8, 10)}`;
  const clock = `${time.slice(11, 13)}${time.slice(14, 16)}${time.slice(17, 19)}${time.slice(20)}`;
  return `${date}T${clock}Z${id}`;
}

function readIdAt(text: string, at: number): string {
  return text.slice(at + timeCharacters, at + segmentCharacters);
}

/**
 * Converts the ids to lower case. Changes only A to F, which occur in ids, so that the T and Z of the times are
 * preserved.
 */
function lowercaseIds(text: string): string {
  return text.replace(/[A-F]+/g, (capitals) => capitals.toLowerCase());
}

/** Returns the time of the segment at `at`; `undefined` if the time is invalid. Hour 24 and second 60 are invalid. */
function readTimeAt(text: string, at: number): number | undefined {
  const days = countDaysSince1970(parseDigits(text, at, 4), parseDigits(text, at + 4, 2), parseDigits(text, at + 6, 2));
  const hour = parseDigits(text, at + 9, 2);
  const minute = parseDigits(text, at + 11, 2);
  const second = parseDigits(text, at + 13, 2);
  const micros = parseDigits(text, at + 15, 6);
  if (days === undefined || text[at + 8] !== 'T' || text[at + 21] !== 'Z') return undefined;
  if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 59 || micros < 0) return undefined;
  return (days * 86_400 + hour * 3_600 + minute * 60 + second) * 1_000_000 + micros;
}
