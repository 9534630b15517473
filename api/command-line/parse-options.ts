/** Values of command-line options that several commands have. */
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { parseTime } from '../../pipelines/ingest/run-event/times.ts';
import { toPrintable } from './print-table.ts';

/** Parses `--limit`, a number from 1 to `max`. @throws BAD_REQUEST */
export function parseLimit(text: string, max: number): number {
  const limit = Number(text);
  if (/^\d+$/.test(text) && text.length <= String(max).length && limit >= 1 && limit <= max) return limit;
  const reason = `--limit must be a number from 1 to ${max}, not '${toPrintable(text)}'.`;
  throw runlakeError('BAD_REQUEST', { reason });
}

/**
 * Parses the time of an option.
 *
 * @param example Accepted times, for the message.
 * @returns microseconds since the epoch. @throws BAD_REQUEST
 */
export function parseTimeOption(option: string, text: string, example = '2026-01-31T12:00:00Z'): number {
  const micros = parseTime(text);
  if (micros !== undefined) return micros;
  const reason = `${option} must be a time such as ${example}, not '${toPrintable(text)}'.`;
  throw runlakeError('BAD_REQUEST', { reason });
}
