import { isRunlakeError, type RunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Rejection } from './draft.ts';

/**
 * Converts an error of class `caller` to the rejection of one run. @throws any other error, which fails the whole request.
 */
export function rejectionOf(run: string, error: unknown): Rejection {
  if (!isRunlakeError(error) || error.class !== 'caller') throw error;
  return { run, error };
}

/** Rejects a run that is inconsistent. */
export function inconsistent(run: string, reason: string): Rejection {
  return { run, error: runlakeError('INVALID_RUN', { run, reason }) };
}

/** The error of a request with a single run: the error of the run. */
export function singleRunRefused(rejected: readonly Rejection[]): RunlakeError {
  return (rejected[0] as Rejection).error;
}

/** Maximum number of rejections that an answer lists. */
export const listedRejections = 100;

/**
 * The error of a request of which nothing was accepted. If all runs have the same error code other than INVALID_RUN, it
 * is the error of the first run (413, 422); otherwise ALL_RUNS_INVALID with status 400, which lists them.
 */
export function nothingTaken(rejected: readonly Rejection[]): RunlakeError {
  const { error: first } = rejected[0] as Rejection;
  if (first.code !== 'INVALID_RUN' && rejected.every(({ error }) => error.code === first.code)) return first;
  const fields = rejected
    .slice(0, listedRejections)
    .map(({ run, error }) => ({ loc: ['body', run], msg: error.message, type: error.code }));
  // Companions repeat the error of their run, so remove duplicates.
  const reasons = new Set(rejected.slice(0, listedRejections).map(({ error }) => error.message));
  return runlakeError('ALL_RUNS_INVALID', { reason: [...reasons].slice(0, 3).join(' ') }, { fields });
}

export function runTooLarge(run: string, maxRunBytes: number): RunlakeError {
  return runlakeError('RUN_TOO_LARGE', { run, limitBytes: maxRunBytes, limit: 'RUNLAKE_MAX_RUN_BYTES' });
}

/** @throws RUN_TOO_LARGE if the text of a run, or of one of its fields, exceeds the limit for a whole run. */
export function requireRunSize(run: string, bytes: number, maxRunBytes: number): void {
  if (bytes > maxRunBytes) throw runTooLarge(run, maxRunBytes);
}
