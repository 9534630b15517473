import { basename } from 'node:path';
import { type RunlakeError, runlakeError } from './runlake-error.ts';

/**
 * Converts a file system error for a work file to WORK_FILE_UNUSABLE. Callers of the API see its message, so the path is
 * only in the cause.
 */
export function toWorkFileError(path: string, cause: unknown): RunlakeError {
  const reason = cause instanceof Error && 'code' in cause ? String(cause.code) : 'unknown';
  return runlakeError('WORK_FILE_UNUSABLE', { file: basename(path), reason }, { cause });
}
