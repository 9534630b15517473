import { fault } from '../../../../infra/errors/runlake-error.ts';

/** The fault of a Zstandard stream that is damaged, or asks for more than it is given. */
export function corrupt(reason: string): Error {
  return fault('INVALID_COMPRESSION', { encoding: 'zstd', reason });
}
