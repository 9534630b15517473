import { Type } from 'typebox';
import type { JobEntry } from '../../../schemas/jobs/catalogue.ts';

const rules = { timeoutMs: 5_000, attempts: 3, retryDelayMs: 20, exponentialBackoff: false, concurrency: 2 };

/** Kinds of jobs with delays that are short enough for tests. */
export const testCatalogue = {
  quick: { ...rules, payload: Type.Object({ n: Type.Integer() }, { additionalProperties: false }) },
  hasty: { ...rules, payload: Type.Object({}), timeoutMs: 50, attempts: 2 },
  single: { ...rules, payload: Type.Object({ n: Type.Integer() }), concurrency: 1 },
} as const satisfies Record<string, JobEntry>;
