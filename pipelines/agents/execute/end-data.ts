import { fitsEndEvent } from '../runs/final-values.ts';
import { isGivenUp } from '../runs/release-run.ts';
import type { EndedRun } from '../runs/run-row.ts';
import type { RunEnd } from '../streams/stream-ports.ts';

const withHole = Buffer.from('{"events_missing":true,');
const beforeUnsaid = Buffer.from('{"unsaid":');
const beforeFeedback = Buffer.from('{"feedback":');
/** Stands nowhere within either: they are objects of text, and text has its quotes escaped. */
const afterFirst = Buffer.from('},"status":');

/**
 * JSON text of the {@link RunEnd} of a run. Readers find what stands first, a hole, a failure that no event tells of, or else the
 * feedback, without parsing the values.
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

/** Whether {@link RunEnd.events_missing}. */
export function endHasHole(data: Uint8Array): boolean {
  return withHole.equals(data.subarray(0, withHole.length));
}

/** JSON text of {@link RunEnd.unsaid}; undefined where events have said all. */
export function unsaidInEnd(data: Uint8Array): Uint8Array | undefined {
  return firstInEnd(data, beforeUnsaid);
}

/** JSON text of {@link RunEnd.feedback}; undefined where the run has none. */
export function feedbackInEnd(data: Uint8Array): Uint8Array | undefined {
  return firstInEnd(data, beforeFeedback);
}

/** An object that stands first. */
function firstInEnd(data: Uint8Array, before: Buffer): Uint8Array | undefined {
  const text = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  const first = before.length;
  if (!text.subarray(0, first).equals(before)) return undefined;
  return text.subarray(first, text.indexOf(afterFirst, first) + 1);
}
