import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { Checkpoint, claimRun, endAttempt } from '../../../pipelines/exports/checkpoint.ts';
import { type ExportStatus, exportStatuses } from '../../../pipelines/exports/record.ts';
import { finishExport, isFinished, transitions } from '../../../pipelines/exports/states.ts';
import { forSuite } from '../../for-suite.ts';
import { openExportsUnderTest } from './exports-under-test.ts';

const shop = forSuite(() => openExportsUnderTest({ exportsPerWorkspace: 10_000, exportRetries: 0 }));

const ends = ['COMPLETED', 'FAILED', 'CANCELLED', 'TIMEDOUT'] as const;
const allowed = (what: string, from: ExportStatus, to: ExportStatus) =>
  transitions.some((move) => move.what === what && move.from === from && move.to === to);
/** Every pair of states, allowed or not. */
const pairs = exportStatuses.flatMap((from) => exportStatuses.map((to) => ({ from, to })));

const put = (table: string, id: string, status: ExportStatus) =>
  shop.database.execute(`UPDATE ${table} SET status = $2, finished_at = CASE WHEN $3 THEN now() END WHERE id = $1`, [
    id,
    status,
    isFinished(status),
  ]);
const statusOf = async (table: string, id: string) => {
  const [row] = await shop.database.query<{ status: string }>(`SELECT status FROM ${table} WHERE id = $1`, [id]);
  return row?.status;
};

describe('the table of state transitions', () => {
  it('has no transition out of a final state, and none from a state to itself', () => {
    expect(transitions.filter(({ from, to }) => isFinished(from) || from === to)).toEqual([]);
    expect(exportStatuses.filter(isFinished)).toEqual([...ends]);
  });
});

describe.each(['export', 'schedule'] as const)('%s', (what) => {
  it.each(pairs.filter(({ to }) => isFinished(to)))('$from → $to', async ({ from, to }) => {
    const made = await shop.create(what === 'schedule' ? { intervalHours: 1 } : {});
    await put('bulk_exports', made.id, from);
    const ended = await finishExport(shop.deps, made.id, { to: to as (typeof ends)[number], reason: 'why' });
    expect(ended).toBe(allowed(what, from, to));
    expect(await statusOf('bulk_exports', made.id)).toBe(ended ? to : from);
    if (ended) expect(await shop.read(made.id)).toMatchObject({ statusReason: 'why', finishedAt: expect.any(String) });
  });
});

describe('an export', () => {
  it.each(exportStatuses.map((from) => ({ from })))('$from → RUNNING', async ({ from }) => {
    const made = await shop.create();
    await put('bulk_exports', made.id, from);
    await shop.start(made.id);
    const moved = allowed('export', from, 'RUNNING');
    expect(await statusOf('bulk_exports', made.id)).toBe(moved ? 'RUNNING' : from);
    expect((await shop.runs(made.id)).length).toBe(moved ? 1 : 0);
  });
});

describe('a run', () => {
  async function runIn(from: ExportStatus) {
    const made = await shop.create();
    await shop.start(made.id);
    const [run] = await shop.runs(made.id);
    if (run === undefined) throw new Error('no run');
    await put('bulk_export_runs', run.id, from);
    return { exportId: made.id, run };
  }

  it.each(exportStatuses.map((from) => ({ from })))('$from → RUNNING', async ({ from }) => {
    const { run } = await runIn(from);
    const taken = await claimRun(shop.deps, run.id);
    // The run remains RUNNING when it is claimed again after a crash.
    expect(taken !== undefined).toBe(from === 'RUNNING' || allowed('run', from, 'RUNNING'));
    expect(await statusOf('bulk_export_runs', run.id)).toBe(taken ? 'RUNNING' : from);
  });

  it.each(exportStatuses.map((from) => ({ from })))('$from → COMPLETED', async ({ from }) => {
    const { run } = await runIn(from);
    const completed = new Checkpoint(shop.deps, run).complete({ lateRuns: 0 });
    if (allowed('run', from, 'COMPLETED')) await completed;
    else await expect(completed).rejects.toMatchObject({ code: 'EXPORT_ATTEMPT_OVER' });
    expect(await statusOf('bulk_export_runs', run.id)).toBe(allowed('run', from, 'COMPLETED') ? 'COMPLETED' : from);
  });

  it.each(exportStatuses.map((from) => ({ from })))('$from → FAILED', async ({ from }) => {
    const { run, exportId } = await runIn(from);
    const end = await endAttempt(shop.deps, run, runlakeError('BAD_REQUEST', { reason: 'Bucket.' }));
    expect(end === 'failed').toBe(allowed('run', from, 'FAILED'));
    expect(await statusOf('bulk_export_runs', run.id)).toBe(end === 'failed' ? 'FAILED' : from);
    expect(await statusOf('bulk_exports', exportId)).toBe(end === 'failed' ? 'FAILED' : 'RUNNING');
  });

  it.each(exportStatuses.flatMap((from) => (['CANCELLED', 'TIMEDOUT'] as const).map((to) => ({ from, to }))))(
    '$from → $to with its export',
    async ({ from, to }) => {
      const { run, exportId } = await runIn(from);
      await finishExport(shop.deps, exportId, { to, reason: null });
      expect(await statusOf('bulk_export_runs', run.id)).toBe(allowed('run', from, to) ? to : from);
    },
  );

  it('of another export does not change', async () => {
    const [mine, other] = [await runIn('CREATED'), await runIn('CREATED')];
    await finishExport(shop.deps, mine.exportId, { to: 'CANCELLED', reason: null });
    expect(await statusOf('bulk_export_runs', other.run.id)).toBe('CREATED');
    expect(await claimRun(shop.deps, randomUUID())).toBeUndefined();
  });
});
