import { describe, expect, it } from 'vitest';
import { checkPayload, findJobEntry, toJobOptions } from '../../../infra/jobs/open-jobs.ts';
import { jobCatalogue } from '../../../schemas/jobs/catalogue.ts';

const id = '00000000-0000-4000-8000-000000000001';

/** Payloads of past releases: a new release must read jobs that an old one enqueued. */
const released: readonly [keyof typeof jobCatalogue, unknown][] = [
  ['expire-deferred-events', {}],
  ['requeue-deletions', {}],
  ['change-traces', {}],
  ['replay-dead-letter', { dead_letter_id: 'run-events/0/1' }],
  ['delete-project-runs', { workspace_id: id, project_id: id }],
  ['delete-workspace-data', { workspace_id: id }],
  ['coordinate-export', { export_id: id }],
  ['export-run', { run_id: id }],
];

describe('the catalogue of jobs', () => {
  it.each(released)('%s: reads a released payload', (name, payload) => {
    expect(() => checkPayload(jobCatalogue, name, payload)).not.toThrow();
  });

  it('this test has a released payload of every kind', () => {
    expect(new Set(released.map(([name]) => name))).toEqual(new Set(Object.keys(jobCatalogue)));
  });

  it.each([
    {},
    { workspace_id: id },
    { workspace_id: id, project_id: 'x' },
    { workspace_id: id, project_id: id, more: 1 },
    null,
  ])('delete-project-runs refuses %j', (payload) => {
    expect(() => checkPayload(jobCatalogue, 'delete-project-runs', payload)).toThrow(
      /a job delete-project-runs is invalid/,
    );
  });

  it('translates rules into BullMQ options', () => {
    expect(toJobOptions(findJobEntry(jobCatalogue, 'delete-project-runs'))).toMatchObject({
      attempts: 20,
      backoff: { type: 'exponential', delay: 5_000 },
      removeOnComplete: true,
    });
    expect(toJobOptions(findJobEntry(jobCatalogue, 'expire-deferred-events')).backoff.type).toBe('fixed');
  });
});
