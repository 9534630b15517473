import type { EndedRun } from '../runs/end-run.ts';
import type { RunEnd } from '../streams/stream-ports.ts';

/** Larger values are read from the row of the thread by those who wait; those of a hidden thread, whose row goes now, are not. */
const mostValueBytes = 1024 * 1024;

const beforeFeedback = Buffer.from('{"feedback":');
/** Stands nowhere within the links: they are text, and text has its quotes escaped. */
const afterFeedback = Buffer.from('},"status":');

/** JSON text of the {@link RunEnd} of a run. Readers find the feedback, which stands first, without parsing the values. */
export function endData(run: EndedRun, feedback: RunEnd['feedback']): Buffer {
  const { status, error, values, kwargs, interrupted, interrupts } = run;
  const goes = (text: string) => kwargs.temporary || text.length <= mostValueBytes;
  const members = feedback === undefined ? [] : [`"feedback":${JSON.stringify(feedback)}`];
  members.push(`"status":${JSON.stringify(status)}`);
  if (interrupted) members.push('"interrupted":true');
  const waiting = interrupts === undefined ? undefined : JSON.stringify(interrupts);
  if (waiting !== undefined && goes(waiting)) members.push(`"interrupts":${waiting}`);
  if (error !== undefined) members.push(`"error":${JSON.stringify(error)}`);
  if (values !== undefined && goes(values)) members.push(`"values":${values}`);
  return Buffer.from(`{${members.join(',')}}`);
}

/** JSON text of {@link RunEnd.feedback}; undefined where the run has none. */
export function feedbackInEnd(data: Uint8Array): Uint8Array | undefined {
  const text = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  const first = beforeFeedback.length;
  if (!text.subarray(0, first).equals(beforeFeedback)) return undefined;
  return text.subarray(first, text.indexOf(afterFeedback, first) + 1);
}
