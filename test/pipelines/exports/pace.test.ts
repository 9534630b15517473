import { expect, it } from 'vitest';
import { type ExportWithProgress, paceOf } from '../../../pipelines/exports/queries.ts';

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
  ['estimates uncounted runs by the average of the counted ones', {}, 10, 300],
  ['uses the count if all runs are counted', { runsCounted: 4, rowsCounted: 1_500 }, 10, 50],
  ['tolerates more rows written than counted, because runs may reappear', { runsCounted: 4, rowsCounted: 500 }, 10, 0],
  ['uses the end time of a finished export', { finishedAt: '2026-03-05T00:00:50.000000Z' }, 20, undefined],
  ['is undefined while nothing is written', { rowsWritten: 0 }, undefined, undefined],
  ['is undefined while the export waits', { startedAt: null, rowsWritten: 0 }, undefined, undefined],
])('%s', (_name, more, rowsPerSecond, secondsLeft) => {
  expect(paceOf(progress(more), now)).toEqual({ rowsPerSecond, secondsLeft });
});
