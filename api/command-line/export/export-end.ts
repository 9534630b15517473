import type { ExportRunWithFiles, ExportWithProgress } from '../../../pipelines/exports/queries.ts';
import { printable } from '../print-table.ts';
import { bytesText, durationText, numberText } from './quantities.ts';

/** Formats the result of an export as text: rows, files, their path, and the failures of each day. */
export function endInWords(of: ExportWithProgress, runs: readonly ExportRunWithFiles[]): string[] {
  const lines = [
    `${of.status}${timeTaken(of)}: ${counted(of.rowsWritten, 'row')} in ${counted(of.files, 'file')}, ${bytesText(of.bytesWritten)}.`,
  ];
  if (of.status !== 'COMPLETED' && of.statusReason !== null) lines.push(printable(of.statusReason));
  if (of.files > 0) lines.push(`Files: ${printable(runs[0]?.prefix ?? '')}`);
  if (of.lateRuns > 0) {
    const [were, are] = of.lateRuns === 1 ? ['run', 'is'] : ['runs', 'are'];
    lines.push(
      `${numberText(of.lateRuns)} ${were} of the range arrived after the export was created and ${are} not included.`,
    );
  }
  if (of.status !== 'COMPLETED') lines.push(...runs.flatMap(failureInWords));
  return lines;
}

/**
 * Formats the failed attempts of an export run; consecutive attempts with the same cause share a line. Empty if none failed.
 */
export function failureInWords(run: ExportRunWithFiles): string[] {
  const causes = attemptsOf(run);
  if (causes.length === 0) return [];
  const lines = [`  ${run.startTime.slice(0, 10)} ${run.status}, ${counted(causes.length, 'attempt')} failed:`];
  let from = 0;
  for (const [index, { number, cause }] of causes.entries()) {
    if (causes[index + 1]?.cause === cause) continue;
    const first = causes[from]?.number ?? number;
    lines.push(`    ${first === number ? `attempt ${number}` : `attempts ${first} to ${number}`}: ${printable(cause)}`);
    from = index + 1;
  }
  return lines;
}

/** Returns the failed attempts of an export run in order, numbered from 1. */
export function attemptsOf({ errors }: Pick<ExportRunWithFiles, 'errors'>): { number: number; cause: string }[] {
  return Object.entries(errors ?? {})
    .map(([name, cause]) => ({ number: Number(name.replace('retry_', '')) + 1, cause }))
    .sort((a, b) => a.number - b.number);
}

function timeTaken({ startedAt, finishedAt }: ExportWithProgress): string {
  if (startedAt === null || finishedAt === null) return '';
  return ` in ${durationText(Math.max(0, Date.parse(finishedAt) - Date.parse(startedAt)) / 1_000)}`;
}

function counted(count: number, what: string): string {
  return `${numberText(count)} ${what}${count === 1 ? '' : 's'}`;
}
