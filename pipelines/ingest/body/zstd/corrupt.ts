import { runlakeError } from '../../../../infra/errors/runlake-error.ts';

/** The error for a Zstandard stream that is damaged or exceeds the limits. */
export function corrupt(reason: string): Error {
  return runlakeError('INVALID_COMPRESSION', { encoding: 'zstd', reason });
}
