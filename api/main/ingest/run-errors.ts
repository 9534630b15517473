import { clickhouseErrors } from '../../server/operation-errors.ts';

/** Errors of accepting runs in any format. */
export const runErrors = [
  'INVALID_RUN',
  'INVALID_JSON',
  'INVALID_UTF8',
  'TOO_DEEP',
  'RUN_TOO_LARGE',
  'PROJECT_UNKNOWN',
  'LIMIT_REACHED',
  'OVERLOADED',
  'EVENT_LOG_UNAVAILABLE',
] as const;

/** Errors of accepting batches. */
export const batchErrors = [...runErrors, 'ALL_RUNS_INVALID', 'TOO_MANY_PARTS'] as const;

/** Errors of accepting a patch that must find its run. */
export const patchErrors = [...runErrors, ...clickhouseErrors, 'RUN_UNKNOWN'] as const;
