import { fitsEndEvent } from '../runs/final-values.ts';
import { isGivenUp } from '../runs/release-run.ts';
import type { EndedRun } from '../runs/run-row.ts';
import type { RunEnd } from '../streams/stream-types.ts';

const eventsMissingPrefix = Buffer.from('{"events_missing":true,');
const unsaidPrefix = Buffer.from('{"unsaid":');
const feedbackPrefix = Buffer.from('{"feedback":');
/** The end of the first member. It cannot occur inside that member, which holds only strings, whose quotes are escaped. */
const endOfFirst = Buffer.from('},"status":');

/**
 * Encodes the {@link RunEnd} of a run as JSON text. The first member is `events_missing`, `unsaid` or `feedback`, if
 * the run has one of them, so that readers find it without parsing the values.
 */
export function endData(run: EndedRun, feedback: RunEnd['feedback']): Buffer {
  const { status, graphId, error, values, kwargs, interrupted, interrupts } = run;
  const members: string[] = [];
  if (run.eventsMissing) members.push('"events_missing":true');
  else if (error !== undefined && isGivenUp(error)) members.push(`"unsaid":${JSON.stringify(error)}`);
  else if (feedback !== undefined) members.push(`"feedback":${JSON.stringify(feedback)}`);
  members.push(`"status":${JSON.stringify(status)}`, `"graph_id":${JSON.stringify(graphId)}`);
  if (interrupted) members.push('"interrupted":true');
  const waiting = interrupts === undefined ? undefined : JSON.stringify(interrupts);
  if (waiting !== undefined && fitsEndEvent(kwargs, waiting)) members.push(`"interrupts":${waiting}`);
  if (error !== undefined) members.push(`"error":${JSON.stringify(error)}`);
  if (values !== undefined && fitsEndEvent(kwargs, values)) members.push(`"values":${values}`);
  return Buffer.from(`{${members.join(',')}}`);
}

/** Reads {@link RunEnd.events_missing} without parsing the JSON text. */
export function endHasGap(data: Uint8Array): boolean {
  return eventsMissingPrefix.equals(data.subarray(0, eventsMissingPrefix.length));
}

/** Returns the JSON text of {@link RunEnd.unsaid}; undefined if an event reported the failure, or the run did not fail. */
export function unsaidInEnd(data: Uint8Array): Uint8Array | undefined {
  return readFirstMember(data, unsaidPrefix);
}

/** Returns the JSON text of {@link RunEnd.feedback}; undefined if the run has none. */
export function feedbackInEnd(data: Uint8Array): Uint8Array | undefined {
  return readFirstMember(data, feedbackPrefix);
}

/** Returns the JSON text of the first member if it is an object with this prefix. */
function readFirstMember(data: Uint8Array, prefix: Buffer): Uint8Array | undefined {
  const text = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  const first = prefix.length;
  if (!text.subarray(0, first).equals(prefix)) return undefined;
  return text.subarray(first, text.indexOf(endOfFirst, first) + 1);
}
