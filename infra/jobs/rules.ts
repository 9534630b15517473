import { Compile } from 'typebox/compile';
import type { JobCatalogue, JobEntry } from '../../schemas/jobs/catalogue.ts';
import { fault } from '../errors/runlake-error.ts';

const weekSeconds = 7 * 86_400;

/** The rules of a kind of job, in BullMQ's words. */
export function rulesOf({ attempts, retryDelayMs, growing }: JobEntry) {
  return {
    attempts,
    backoff: { type: growing ? 'exponential' : 'fixed', delay: retryDelayMs },
    removeOnComplete: true,
    removeOnFail: { age: weekSeconds, count: 10_000 },
  };
}

/** @throws INVALID_JOB where the catalogue has no such kind. */
export function entryOf(catalogue: JobCatalogue, name: string): JobEntry {
  const entry = catalogue[name];
  if (entry === undefined) throw fault('INVALID_JOB', { job: name, reason: 'the catalogue does not have it' });
  return entry;
}

/** @throws INVALID_JOB where `payload` does not fit the schema of the kind. */
export function checkPayload(catalogue: JobCatalogue, name: string, payload: unknown): void {
  const check = Compile(entryOf(catalogue, name).payload);
  if (check.Check(payload)) return;
  const [first] = check.Errors(payload);
  throw fault('INVALID_JOB', {
    job: name,
    reason: `${first?.instancePath || 'payload'} ${first?.message ?? 'is wrong'}`,
  });
}
