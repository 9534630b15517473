import { randomUUID } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import type { ErrorCode } from '../../../infra/errors/catalogue.ts';
import { exportErrors } from '../../../infra/errors/export-errors.ts';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { cancelExport } from '../../../pipelines/exports/create-cancel.ts';
import { sweepExports } from '../../../pipelines/exports/scheduler.ts';
import { forSuite } from '../../for-suite.ts';
import { deferred, untilAborted } from '../../infra/deferred.ts';
import { until } from '../../infra/until.ts';
import { createDisturbedDeps, type Disturbance, failingDeps, failureParams, type Step } from './disturbed.ts';
import { day, openExportsUnderTest } from './exports-under-test.ts';

const dayMicros = 86_400_000_000;
const at = day('2026-03-05');
const retries = 2;
const delayMs = 30_000;

const shop = forSuite(() =>
  openExportsUnderTest({
    exportRetries: retries,
    exportRetryDelayMs: delayMs,
    exportsPerWorkspace: 1_000,
  }),
);
let ids: string[];
beforeAll(async () => {
  ids = await shop.store(34, at);
});
beforeEach(() => {
  shop.jobs.length = 0;
});

/** Starts an export of this number of days. Returns the ids of the export and of its first run, and the other runs. */
async function started(days = 1) {
  const made = await shop.create({ endTimeMicros: at + days * dayMicros });
  await shop.start(made.id);
  const runs = await shop.runs(made.id);
  return { exportId: made.id, runId: runs[0]?.id ?? '', siblings: runs.slice(1) };
}

const advanceClock = (ms: number) => {
  shop.clock.now = new Date(shop.clock.now.getTime() + ms);
};

const disturbed = (step: Step, disturb: Disturbance) => createDisturbedDeps(shop.deps, step, disturb);
const failing = (step: Step, code: ErrorCode) => failingDeps(shop.deps, step, code);

/**
 * Errors after which a retry may succeed: the store is unavailable or busy, an engine fails, resources run out, or the
 * operator must act.
 */
const temporary = [
  ['CLICKHOUSE_UNAVAILABLE', 'read'],
  ['CLICKHOUSE_QUERY_FAILED', 'find'],
  ['DESTINATION_UNAVAILABLE', 'upload'],
  ['DESTINATION_OBJECT_DAMAGED', 'upload'],
  ['DESTINATION_ENDPOINT_INVALID', 'upload'],
  ['EXPORT_FILE_INVALID', 'encode'],
  ['PARQUET_ENCODER_FAILED', 'encode'],
  ['WORK_FILE_UNUSABLE', 'encode'],
  ['CLICKHOUSE_UNAVAILABLE', 'count'],
  ['SEAL_KEY_UNKNOWN', 'open'],
  ['INTERNAL', 'encode'],
] as const;
/**
 * Errors that the owner of the destination must fix: credentials, permissions and bucket, and whether they exist.
 */
const permanent = [
  ['DESTINATION_ACCESS_DENIED', 'upload'],
  ['DESTINATION_BUCKET_NOT_VALID', 'upload'],
  ['DESTINATION_KEY_UNKNOWN', 'upload'],
  ['DESTINATION_ENDPOINT_NOT_ALLOWED', 'upload'],
  ['DESTINATION_OBJECT_MISSING', 'upload'],
  ['DESTINATION_TYPE_OFF', 'open'],
  ['DESTINATION_CREDENTIALS_REQUIRED', 'open'],
  ['NOT_FOUND', 'open'],
  ['EXPORT_PROJECT_DELETED', 'read'],
] as const;
/** Errors that have their own tests below, or never end an attempt. */
const others = [
  'DESTINATION_FILE_MISSING',
  'EXPORT_ATTEMPT_OVER',
  'EXPORT_RUN_TIMED_OUT',
  'EXPORT_FINISHED',
  'DESTINATION_IN_USE',
];

describe('a failed attempt', () => {
  it('is tested for every error code of exports and destinations', () => {
    const covered = new Set([...temporary, ...permanent].map(([code]) => code as string).concat(others));
    expect(Object.keys(exportErrors).filter((code) => !covered.has(code))).toEqual([]);
  });

  it.each(temporary)('%s during %s: is retried after the delay, and continues', async (code, step) => {
    const { exportId, runId } = await started();
    shop.jobs.length = 0;
    await shop.worker(failing(step, code)).attempt(runId);
    const run = await shop.firstRun(exportId);
    expect(run).toMatchObject({ status: 'RUNNING', retryNumber: 1, attemptStartedAt: null });
    const { message, remedy } = runlakeError(code, failureParams);
    expect(run.errors).toEqual({ retry_0: `${message} ${remedy}` });
    expect(Date.parse(run.nextAttemptAt) - shop.clock.now.getTime()).toBe(delayMs);
    expect(shop.jobs).toEqual([{ name: 'export-run', payload: { run_id: runId }, delayMs }]);
    // No retry starts before the delay has passed.
    advanceClock(delayMs - 1);
    await shop.worker().attempt(runId);
    expect(await shop.firstRun(exportId)).toMatchObject({ fence: 1, retryNumber: 1 });
    advanceClock(1);
    await shop.worker().attempt(runId);
    expect(await shop.firstRun(exportId)).toMatchObject({ status: 'COMPLETED', retryNumber: 1 });
    expect(await shop.exportedIds(exportId)).toEqual(ids);
  });

  it('records the cause of each attempt, and is final when the retries are used up', async () => {
    const { exportId, runId, siblings } = await started(3);
    const worker = shop.worker(failing('upload', 'DESTINATION_UNAVAILABLE'));
    for (let attempt = 0; attempt <= retries; attempt++) {
      expect((await shop.read(exportId)).status).toBe('RUNNING');
      await worker.attempt(runId);
      advanceClock(delayMs);
    }
    const run = await shop.firstRun(exportId);
    expect(run).toMatchObject({ status: 'FAILED', retryNumber: retries, finishedAt: expect.any(String) });
    expect(Object.keys(run.errors ?? {})).toEqual(['retry_0', 'retry_1', 'retry_2']);
    const made = await shop.read(exportId);
    expect(made).toMatchObject({ status: 'FAILED', manifestAt: null });
    expect(made.statusReason).toContain('2026-03-05');
    expect((await shop.runs(exportId)).slice(1).map(({ status }) => status)).toEqual(['CANCELLED', 'CANCELLED']);
    // Handling a sibling that is still queued changes nothing.
    await shop.worker().attempt(siblings[0]?.id ?? '');
    expect((await shop.runs(exportId))[1]).toMatchObject({ status: 'CANCELLED', fence: 0 });
  });

  it.each(permanent)('%s during %s: the run and its export fail at once', async (code, step) => {
    const { exportId, runId } = await started(2);
    shop.jobs.length = 0;
    await shop.worker(failing(step, code)).attempt(runId);
    const { message, remedy } = runlakeError(code, failureParams);
    const run = await shop.firstRun(exportId);
    expect(run).toMatchObject({ status: 'FAILED', retryNumber: 0, errors: { retry_0: `${message} ${remedy}` } });
    expect(await shop.read(exportId)).toMatchObject({
      status: 'FAILED',
      statusReason: expect.stringContaining(message),
    });
    expect((await shop.runs(exportId))[1]?.status).toBe('CANCELLED');
    expect(shop.jobs).toEqual([]);
  });

  it('hides the details of an unexpected error', async () => {
    const { exportId, runId } = await started();
    const secret = disturbed('upload', async () => {
      throw Object.assign(new TypeError('password=hunter2'), {});
    });
    await shop.worker(secret).attempt(runId);
    const { errors, status } = await shop.firstRun(exportId);
    expect(status).toBe('RUNNING');
    expect(JSON.stringify(errors)).not.toContain('hunter2');
    expect(errors?.retry_0).toContain('Internal error');
  });

  it('lists the files that were finished before it', async () => {
    const { exportId, runId } = await started();
    let uploads = 0;
    const third = disturbed('upload', async () => {
      if (++uploads === 3)
        throw runlakeError('DESTINATION_BUCKET_NOT_VALID', { step: 'write', reason: 'r', where: 'w' });
    });
    await shop.worker(third).attempt(runId);
    const run = await shop.firstRun(exportId);
    expect(run).toMatchObject({ status: 'FAILED', rowsWritten: 20 });
    expect(run.paths).toHaveLength(2);
    expect(await shop.exportedIds(exportId)).toEqual(ids.slice(0, 20));
  });
});

describe('an attempt that takes too long', () => {
  it('is aborted and retried, and fails the export when the retries are used up', async () => {
    const short = await openExportsUnderTest({ exportRunTimeoutMs: 100, exportRetries: 1, exportRetryDelayMs: 0 });
    onTestFinished(() => short.close());
    await short.store(5, at);
    const made = await short.create();
    await short.start(made.id);
    const [{ id: runId } = { id: '' }] = await short.runs(made.id);
    const slow = short.worker({
      openSource: (...scope) => ({
        ...short.deps.openSource(...scope),
        read: (_chunk, _folder, signal) => untilAborted(signal),
      }),
    });
    await slow.attempt(runId);
    expect((await short.runs(made.id))[0]).toMatchObject({ status: 'RUNNING', retryNumber: 1 });
    await slow.attempt(runId);
    const [run] = await short.runs(made.id);
    expect(run).toMatchObject({ status: 'FAILED', retryNumber: 1 });
    expect(run?.errors?.retry_1).toContain('RUNLAKE_EXPORT_RUN_TIMEOUT_MS');
    expect((await short.read(made.id)).status).toBe('FAILED');
  });
});

describe('a worker detects within two seconds', () => {
  const stuck = (reached: () => void) => async (signal: AbortSignal | undefined) => {
    reached();
    await untilAborted(signal);
  };

  it.each(['count', 'find', 'read', 'encode', 'upload'] as const)('a cancellation during %s', async (step) => {
    const { exportId, runId } = await started(2);
    const { promise: there, resolve: reached } = deferred();
    const working = shop.worker(disturbed(step, stuck(reached))).attempt(runId);
    await there;
    const beganMs = performance.now();
    await cancelExport(shop.deps, shop.workspaceId, exportId);
    await working;
    expect(performance.now() - beganMs).toBeLessThan(2_000);
    expect((await shop.runs(exportId)).map(({ status }) => status)).toEqual(['CANCELLED', 'CANCELLED']);
    expect(await shop.firstRun(exportId)).toMatchObject({ retryNumber: 0, errors: null, pendingUpload: null });
    expect(await shop.read(exportId)).toMatchObject({ status: 'CANCELLED', manifestAt: null });
    expect([...(await shop.objects()).keys()].filter((key) => key.includes(exportId))).toEqual([]);
  });

  it('that the export timed out', async () => {
    const { exportId, runId } = await started(2);
    const { promise: there, resolve: reached } = deferred();
    const working = shop.worker(disturbed('read', stuck(reached))).attempt(runId);
    await there;
    advanceClock(shop.limits.exportTimeoutMs);
    await sweepExports(shop.deps);
    await working;
    const made = await shop.read(exportId);
    expect(made.status).toBe('TIMEDOUT');
    expect(made.statusReason).toContain('RUNLAKE_EXPORT_TIMEOUT_MS');
    expect((await shop.runs(exportId)).map(({ status }) => status)).toEqual(['TIMEDOUT', 'TIMEDOUT']);
  });

  it('that its project was deleted, which fails the export', async () => {
    const own = await openExportsUnderTest();
    onTestFinished(() => own.close());
    await own.store(5, at);
    const made = await own.create();
    await own.start(made.id);
    const [{ id: runId } = { id: '' }] = await own.runs(made.id);
    const { promise: there, resolve: reached } = deferred();
    const worker = own.worker({
      openSource: (...scope) => ({
        ...own.deps.openSource(...scope),
        read: async (_chunk, _folder, signal) => stuck(reached)(signal),
      }),
    });
    const working = worker.attempt(runId);
    await there;
    await own.database.execute('UPDATE projects SET deleted_at = now() WHERE id = $1', [own.projectId]);
    await working;
    expect(await own.read(made.id)).toMatchObject({ status: 'FAILED', rowsWritten: 0 });
  });
});

describe('a process that stops', () => {
  it('releases its runs without a retry, and claims no more', async () => {
    const { exportId, runId } = await started();
    const { promise: there, resolve: reached } = deferred();
    let uploads = 0;
    const worker = shop.worker(
      disturbed('upload', async (signal) => {
        if (++uploads < 3) return;
        reached();
        await untilAborted(signal);
      }),
    );
    const working = worker.attempt(runId);
    await there;
    shop.jobs.length = 0;
    worker.attempts.stop();
    await working;
    expect(await shop.firstRun(exportId)).toMatchObject({
      status: 'RUNNING',
      retryNumber: 0,
      rowsWritten: 20,
      errors: null,
    });
    expect(shop.jobs).toEqual([{ name: 'export-run', payload: { run_id: runId }, delayMs: 0 }]);
    await worker.attempt(runId);
    expect(await shop.firstRun(exportId)).toMatchObject({ fence: 1 });
    await shop.worker().attempt(runId);
    expect(await shop.firstRun(exportId)).toMatchObject({ status: 'COMPLETED', fence: 2 });
    expect(await shop.exportedIds(exportId)).toEqual(ids);
  });
});

describe('a lease', () => {
  it('is renewed while a worker lives, also if the worker writes nothing for longer than the lease', async () => {
    const short = await openExportsUnderTest({ exportLeaseMs: 3_000 });
    onTestFinished(() => short.close());
    await short.store(5, at);
    const made = await short.create();
    await short.start(made.id);
    const [{ id: runId } = { id: '' }] = await short.runs(made.id);
    const { promise: held, resolve: resume } = deferred();
    const worker = short.worker({
      openSource: (...scope) => {
        const source = short.deps.openSource(...scope);
        return { ...source, read: async (...args) => held.then(() => source.read(...args)) };
      },
    });
    const working = worker.attempt(runId);
    const readLease = async () => {
      const [row] = await short.database.query<{ lease: string; fence: number }>(
        'SELECT lease_until AS lease, fence FROM bulk_export_runs WHERE id = $1',
        [runId],
      );
      return row;
    };
    await until('the run to be claimed', async () => (await readLease())?.fence === 1);
    const first = await readLease();
    await until('the lease to be renewed twice', async () => {
      const now = await readLease();
      return Date.parse(now?.lease ?? '') - Date.parse(first?.lease ?? '') > 3_000;
    });
    await short.worker().attempt(runId);
    resume();
    await working;
    expect((await short.runs(made.id))[0]).toMatchObject({ status: 'COMPLETED', fence: 1 });
  });

  it('is refused for more runs of an export than may run at once', async () => {
    const narrow = await openExportsUnderTest({ exportRunsAtOnce: 2 });
    onTestFinished(() => narrow.close());
    const made = await narrow.create({ endTimeMicros: at + 5 * dayMicros });
    await narrow.start(made.id);
    // Only this number of runs is queued.
    expect(narrow.jobs.filter(({ name }) => name === 'export-run')).toHaveLength(2);
    const runs = await narrow.runs(made.id);
    const resume: (() => void)[] = [];
    const worker = narrow.worker({
      openSource: (...scope) => {
        const source = narrow.deps.openSource(...scope);
        return {
          ...source,
          count: async (signal) => {
            await new Promise<void>((resolve) => resume.push(resolve));
            return source.count(signal);
          },
        };
      },
    });
    const working = runs.map(({ id }) => worker.attempt(id));
    await until('two runs to be in progress', () => resume.length === 2 && worker.attempts.size === 2);
    const statuses = (await narrow.runs(made.id)).map(({ status }) => status);
    expect(statuses.filter((status) => status === 'RUNNING')).toHaveLength(2);
    const release = setInterval(() => {
      for (const each of resume.splice(0)) each();
    }, 5);
    await Promise.all(working);
    clearInterval(release);
    await narrow.work();
    expect((await narrow.read(made.id)).status).toBe('COMPLETED');
  });
});

describe('a run that does not exist', () => {
  it('is ignored', async () => {
    await expect(shop.worker().attempt(randomUUID())).resolves.toBe(false);
    const [own = ''] = await readdir(shop.workRoot);
    expect(await readdir(`${shop.workRoot}/${own}`)).toEqual(['owner.json']);
  });
});
