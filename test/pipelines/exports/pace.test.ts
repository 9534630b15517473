import { expect, it } from 'vitest';
import { type ExportWithProgress, paceOf } from '../../../pipelines/exports/read-export.ts';

const now = new Date('2026-03-05T00:01:40Z');
const progress = (more: Partial<ExportWithProgress>) =>
  ({
    startedAt: '2026-03-05T00:00:00.000000Z',
    finishedAt: null,
    runsTotal: 4,
    runsCounted: 2,
    rowsCounted: 2_000,
    rowsWritten: 1_000,
    ...more,
  }) as ExportWithProgress;

it.each([
  ['runs that were not counted are taken for as large as the others', {}, 10, 300],
  ['all are counted', { runsCounted: 4, rowsCounted: 1_500 }, 10, 50],
  ['more was written than was counted, as runs may come back', { runsCounted: 4, rowsCounted: 500 }, 10, 0],
  ['it is finished', { finishedAt: '2026-03-05T00:00:50.000000Z' }, 20, undefined],
  ['nothing is written', { rowsWritten: 0 }, undefined, undefined],
  ['it waits', { startedAt: null, rowsWritten: 0 }, undefined, undefined],
])('%s', (_name, more, rowsPerSecond, secondsLeft) => {
  expect(paceOf(progress(more), now)).toEqual({ rowsPerSecond, secondsLeft });
});
