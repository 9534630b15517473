import { type ExportWithProgress, paceOf, shareDone } from '../../../pipelines/exports/queries.ts';
import { bytesText, durationText, numberText } from './quantities.ts';

const barCells = 24;

/**
 * Formats progress as `40 %  1,200 of 3,000 rows  1.2 MB  800 rows/s  3 s left`, or as the reason why the export has
 * not started.
 */
export function progressWords(of: ExportWithProgress, now: Date): string {
  if (of.status === 'CREATED') return of.statusReason ?? 'Waiting for a worker.';
  const { rowsPerSecond, secondsLeft } = paceOf(of, now);
  const counted = of.runsTotal > 0 && of.runsCounted === of.runsTotal;
  const rows = numberText(of.rowsWritten);
  return [
    `${Math.floor(shareDone(of) * 100)} %`,
    `${counted ? `${rows} of ${numberText(of.rowsCounted)}` : rows} rows`,
    ...(of.runsTotal > 1 ? [`${of.runsCompleted} of ${of.runsTotal} days`] : []),
    bytesText(of.bytesWritten),
    ...(rowsPerSecond === undefined ? [] : [`${numberText(rowsPerSecond)} rows/s`]),
    ...(secondsLeft === undefined || of.status === 'COMPLETED' ? [] : [`${durationText(secondsLeft)} left`]),
  ].join('  ');
}

/** Formats {@link progressWords} after a progress bar, truncated to `columns`. */
export function progressBar(of: ExportWithProgress, now: Date, columns: number): string {
  const full = Math.round(barCells * shareDone(of));
  const line = `${'█'.repeat(full)}${'░'.repeat(barCells - full)}  ${progressWords(of, now)}`;
  return line.length <= columns ? line : `${line.slice(0, Math.max(0, columns - 1))}…`;
}
