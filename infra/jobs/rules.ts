import { Compile } from 'typebox/compile';
import type { JobCatalogue, JobEntry } from '../../schemas/jobs/catalogue.ts';
import { runlakeError } from '../errors/runlake-error.ts';

const weekSeconds = 7 * 86_400;

/** BullMQ options for a job type. */
export function toJobOptions({ attempts, retryDelayMs, exponentialBackoff }: JobEntry) {
  return {
    attempts,
    backoff: { type: exponentialBackoff ? 'exponential' : 'fixed', delay: retryDelayMs },
    removeOnComplete: true,
    removeOnFail: { age: weekSeconds, count: 10_000 },
  };
}

/** @throws INVALID_JOB if the catalogue has no such kind. */
export function findJobEntry(catalogue: JobCatalogue, name: string): JobEntry {
  const entry = catalogue[name];
  if (entry === undefined) throw runlakeError('INVALID_JOB', { job: name, reason: 'unknown kind of job' });
  return entry;
}

/** @throws INVALID_JOB if `payload` does not match the schema of the job type. */
export function checkPayload(catalogue: JobCatalogue, name: string, payload: unknown): void {
  const check = Compile(findJobEntry(catalogue, name).payload);
  if (check.Check(payload)) return;
  const [first] = check.Errors(payload);
  throw runlakeError('INVALID_JOB', {
    job: name,
    reason: `${first?.instancePath || 'payload'} ${first?.message ?? 'is invalid'}`,
  });
}
