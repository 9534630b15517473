import { fault, isRunlakeError, type RunlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Rejection } from './draft.ts';

/** A caller's fault as the rejection of one run. @throws everything else, which the whole request has to hear of. */
export function rejectionOf(run: string, error: unknown): Rejection {
  if (!isRunlakeError(error) || error.class !== 'caller') throw error;
  return { run, error };
}

/** The rejection of a run that contradicts itself. */
export function inconsistent(run: string, reason: string): Rejection {
  return { run, error: fault('INVALID_RUN', { run, reason }) };
}

/** The fault of a request for one run: the run's own. */
export function singleRunRefused(rejected: readonly Rejection[]): RunlakeError {
  return (rejected[0] as Rejection).error;
}

/** How many rejections an answer spells out. */
export const listedRejections = 100;

/**
 * The fault of a request of which nothing could be taken: the runs' own where all fail alike in form or size (413, 422),
 * else ALL_RUNS_INVALID with status 400 that lists them.
 */
export function nothingTaken(rejected: readonly Rejection[]): RunlakeError {
  const { error: first } = rejected[0] as Rejection;
  if (first.code !== 'INVALID_RUN' && rejected.every(({ error }) => error.code === first.code)) return first;
  const fields = rejected
    .slice(0, listedRejections)
    .map(({ run, error }) => ({ loc: ['body', run], msg: error.message, type: error.code }));
  // Companions carry the error of their run.
  const reasons = new Set(rejected.slice(0, listedRejections).map(({ error }) => error.message));
  return fault('ALL_RUNS_INVALID', { reason: [...reasons].slice(0, 3).join(' ') }, { fields });
}

export function runTooLarge(run: string, maxRunBytes: number): RunlakeError {
  return fault('RUN_TOO_LARGE', { run, limitBytes: maxRunBytes, limit: 'RUNLAKE_MAX_RUN_BYTES' });
}

/** @throws RUN_TOO_LARGE where the text of a run, or of one field of it, is larger than a whole run may be. */
export function requireRunSize(run: string, bytes: number, maxRunBytes: number): void {
  if (bytes > maxRunBytes) throw runTooLarge(run, maxRunBytes);
}
