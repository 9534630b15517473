import type { Operation } from '../server/operation.ts';

/** Every operation of the main API. A new one is added here and in the table of `test/api/tenancy.test.ts`. */
export const operations: readonly Operation[] = [];
