import { warehouseErrors } from '../../server/operation-errors.ts';

/** What taking runs can be answered with, whatever form they come in. */
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

/** Besides, for those that take many at once. */
export const batchErrors = [...runErrors, 'ALL_RUNS_INVALID', 'TOO_MANY_PARTS'] as const;

/** Besides, for a patch that has to find its run. */
export const patchErrors = [...runErrors, ...warehouseErrors, 'RUN_UNKNOWN'] as const;
