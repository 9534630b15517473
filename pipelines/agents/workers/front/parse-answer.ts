/**
 * Parses answers of workers.
 *
 * Graph code decides what is in an answer, and parsing one of 64 MiB can block the event loop for half a minute: that of
 * the whole server if deployments run in its process. So answers with very many values are refused, and the values of a
 * state, of which there may be millions, stay text.
 */
import { runlakeError } from '../../../../infra/errors/runlake-error.ts';
import { findPath } from '../../../ingest/json/find.ts';
import { exceedsValueCount, findStateFlaw, maxHeadValues } from '../frames.ts';

/** Maximum number of values of an answer that contains a whole state, or vectors. Parsing them takes about a second. */
export const maxStateValues = 4_000_000;

/** @throws WORKER_MESSAGE_TOO_LARGE */
export function parseAnswer<Answer>(json: string, maxValues: number = maxHeadValues): Answer {
  if (json.length > maxValues && exceedsValueCount(Buffer.from(json), maxValues))
    throw runlakeError('WORKER_MESSAGE_TOO_LARGE', { reason: `it has more than ${maxValues} values` });
  return JSON.parse(json) as Answer;
}

/**
 * Parses an answer except the state at `path`, in whose place it has null. Returns the state as JSON text: `null` if the
 * answer has none, or one that is too large for the row of its thread.
 *
 * @throws WORKER_MESSAGE_TOO_LARGE
 */
export function parseAnswerWithout<Answer>(
  json: string,
  path: readonly string[],
): { readonly answer: Answer; readonly text: string } {
  const bytes = Buffer.from(json);
  const range = findPath(bytes, 0, bytes.length, path);
  if (range === undefined) return { answer: parseAnswer(json, maxStateValues), text: 'null' };
  const rest = `${bytes.toString('utf8', 0, range.start)}null${bytes.toString('utf8', range.end)}`;
  const state = bytes.subarray(range.start, range.end);
  const text = findStateFlaw(state) === undefined ? state.toString('utf8') : 'null';
  return { answer: parseAnswer(rest, maxStateValues), text };
}
