import { type RunlakeError, runlakeError } from './runlake-error.ts';

/** Converts a file system error for `file` to WORK_FILE_UNUSABLE. */
export function toWorkFileError(file: string, cause: unknown): RunlakeError {
  const reason = cause instanceof Error && 'code' in cause ? String(cause.code) : 'unknown';
  return runlakeError('WORK_FILE_UNUSABLE', { file, reason }, { cause });
}
