import { fault, type RunlakeError } from './runlake-error.ts';

/** WORK_FILE_UNUSABLE for whatever the file system said of `file`. */
export function workFileFault(file: string, cause: unknown): RunlakeError {
  const reason = cause instanceof Error && 'code' in cause ? String(cause.code) : 'unknown';
  return fault('WORK_FILE_UNUSABLE', { file, reason }, { cause });
}
