import type { WriteStream } from 'node:tty';
import { isTransient, runlakeError } from '../../../infra/errors/runlake-error.ts';
import { pause } from '../../../infra/timeouts/backoff.ts';
import { readClock } from '../../../pipelines/exports/export-deps.ts';
import {
  computeCompletedShare,
  type ExportRunWithFiles,
  type ExportWithProgress,
  estimateRate,
  listExportRuns,
  readExport,
} from '../../../pipelines/exports/queries.ts';
import { isFinished } from '../../../pipelines/exports/states.ts';
import { formatExport } from '../../main/bulk-exports.ts';
import { formatBytes, formatDuration, formatNumber } from '../format-figures.ts';
import { toPrintable } from '../print-table.ts';
import { type ExportAccess, findExport, withExports } from './export-access.ts';

const pollIntervalMs = 250;
/** Maximum time to retry while the stores are unavailable. */
const maxRetryMs = 60_000;
const pageRows = 1_000;

/** Runs `runlake export watch <id>`. */
export async function watchExport(id: string, { json = false }: { readonly json?: boolean }): Promise<void> {
  await withExports(async (access) => {
    const found = await findExport(access, id);
    if (found.intervalHours !== null) {
      const reason = `${found.id} is a schedule. Watch one of its exports; see \`runlake export list --source ${found.id}\`.`;
      throw runlakeError('BAD_REQUEST', { reason });
    }
    await watchUntilEnd(access, found, { json });
  });
}

/**
 * Shows the progress of an export until the export ends, then shows its result. The exit code is 0 only if the export
 * is COMPLETED. It is 130 if SIGINT stopped the command.
 */
export async function watchUntilEnd(
  { database, deps }: ExportAccess,
  { id, workspaceId }: ExportWithProgress,
  { json }: { readonly json: boolean },
): Promise<void> {
  const screen = openScreen(process.stdout, json);
  const stopped = new AbortController();
  const stop = () => stopped.abort();
  process.once('SIGINT', stop);
  const reportedFailures = new Set<string>();
  try {
    let retries = 0;
    for (;;) {
      const exportRecord = await retryWhileUnavailable(
        () => readExport(database, workspaceId, id),
        stopped.signal,
        () => screen.note(`The stores do not answer; retrying for ${maxRetryMs / 1_000} s.`),
      );
      if (exportRecord !== undefined) {
        const hasEnded = isFinished(exportRecord.status);
        const runs = hasEnded || exportRecord.retries > retries ? await listAllRuns({ database }, exportRecord) : [];
        retries = exportRecord.retries;
        if (!hasEnded) for (const line of listNewFailures(runs, reportedFailures)) screen.note(line);
        screen.show(exportRecord, await readClock(deps));
        if (hasEnded) {
          screen.end(formatResult(exportRecord, runs));
          if (exportRecord.status !== 'COMPLETED') process.exitCode = 1;
          return;
        }
        await pause(pollIntervalMs, stopped.signal);
      }
      if (stopped.signal.aborted) {
        screen.end([`The export continues. To watch it again: runlake export watch ${id}`]);
        process.exitCode = 130;
        return;
      }
    }
  } finally {
    process.removeListener('SIGINT', stop);
  }
}

/**
 * Retries `ask` while the stores are unavailable. Calls `onUnavailable` once. Resolves with undefined if `signal` is
 * aborted.
 */
async function retryWhileUnavailable<Answer>(
  query: () => Promise<Answer>,
  signal: AbortSignal,
  onUnavailable: () => void,
): Promise<Answer | undefined> {
  const untilMs = performance.now() + maxRetryMs;
  let reported = false;
  while (!signal.aborted) {
    try {
      return await query();
    } catch (error) {
      if (!isTransient(error) || performance.now() > untilMs) throw error;
      if (!reported) onUnavailable();
      reported = true;
    }
    await pause(pollIntervalMs, signal);
  }
  return undefined;
}

async function listAllRuns(
  { database }: Pick<ExportAccess, 'database'>,
  { id, workspaceId }: ExportWithProgress,
): Promise<ExportRunWithFiles[]> {
  const found: ExportRunWithFiles[] = [];
  for (;;) {
    const page = { limit: pageRows, offset: found.length };
    const runs = await listExportRuns(database, workspaceId, { exportId: id }, page);
    found.push(...runs);
    if (runs.length < pageRows) return found;
  }
}

function listNewFailures(runs: readonly ExportRunWithFiles[], reported: Set<string>): string[] {
  return runs.flatMap((run) =>
    listFailedAttempts(run).flatMap(({ number, cause }) => {
      const name = `${run.id}/${number}`;
      if (reported.has(name)) return [];
      reported.add(name);
      return [`${run.startTime.slice(0, 10)}: attempt ${number} failed, retrying: ${cause}`];
    }),
  );
}

/** Output of `runlake export watch`. */
export interface WatchScreen {
  show(exportRecord: ExportWithProgress, now: Date): void;
  /** Prints a line that is not overwritten. */
  note(line: string): void;
  end(lines: readonly string[]): void;
}

type OutputStream = Pick<NodeJS.WriteStream, 'write'> & Partial<Pick<WriteStream, 'isTTY' | 'columns'>>;

const clearLine = '\r\x1b[K';
const plainLineIntervalMs = 10_000;

/**
 * Opens the output. On a terminal, it shows a progress bar. Otherwise it prints a line for each 10 % of progress, at
 * each change of status, and every ten seconds. With `json`, it prints one object per change.
 */
export function openScreen(output: OutputStream, json: boolean): WatchScreen {
  if (json) return createJsonScreen(output);
  return output.isTTY === true ? createBarScreen(output) : createPlainScreen(output);
}

function createBarScreen(output: OutputStream): WatchScreen {
  return {
    // One column stays free, because some terminals wrap a full line. Some terminals report no width or 0.
    show: (exportRecord, now) =>
      output.write(`${clearLine}${toPrintable(formatProgressBar(exportRecord, now, (output.columns || 80) - 1))}`),
    note: (line) => output.write(`${clearLine}${toPrintable(line)}\n`),
    end: (lines) => output.write(`\n${lines.join('\n')}\n`),
  };
}

function createPlainScreen(output: OutputStream): WatchScreen {
  let before = '';
  let lastPrintedMs = 0;
  return {
    show: (exportRecord, now) => {
      const step = `${exportRecord.status} ${exportRecord.statusReason} ${Math.floor(computeCompletedShare(exportRecord) * 10)}`;
      if (step === before && now.getTime() - lastPrintedMs < plainLineIntervalMs) return;
      before = step;
      lastPrintedMs = now.getTime();
      output.write(`${toPrintable(formatProgress(exportRecord, now))}\n`);
    },
    note: (line) => output.write(`${toPrintable(line)}\n`),
    end: (lines) => output.write(`${lines.join('\n')}\n`),
  };
}

function createJsonScreen(output: OutputStream): WatchScreen {
  let before = '';
  return {
    show: (exportRecord, now) => {
      // The rate and the remaining time change constantly, so they are printed only together with another change.
      const snapshot = JSON.stringify(exportRecord);
      if (snapshot === before) return;
      before = snapshot;
      output.write(`${JSON.stringify(formatExport(exportRecord, now))}\n`);
    },
    note: () => undefined,
    end: () => undefined,
  };
}

const barWidth = 24;

/**
 * Formats progress as `40 % 1,200 of 3,000 rows 1.2 MB 800 rows/s 3 s left`. If the export has not started, returns the
 * reason.
 */
export function formatProgress(exportRecord: ExportWithProgress, now: Date): string {
  if (exportRecord.status === 'CREATED') return exportRecord.statusReason ?? 'Waiting for a worker.';
  const { rowsPerSecond, secondsLeft } = estimateRate(exportRecord, now);
  const isFullyCounted = exportRecord.runsTotal > 0 && exportRecord.runsCounted === exportRecord.runsTotal;
  const rows = formatNumber(exportRecord.rowsWritten);
  return [
    `${Math.floor(computeCompletedShare(exportRecord) * 100)} %`,
    `${isFullyCounted ? `${rows} of ${formatNumber(exportRecord.rowsCounted)}` : rows} rows`,
    ...(exportRecord.runsTotal > 1 ? [`${exportRecord.runsCompleted} of ${exportRecord.runsTotal} days`] : []),
    formatBytes(exportRecord.bytesWritten),
    ...(rowsPerSecond === undefined ? [] : [`${formatNumber(rowsPerSecond)} rows/s`]),
    ...(secondsLeft === undefined || exportRecord.status === 'COMPLETED'
      ? []
      : [`${formatDuration(secondsLeft)} left`]),
  ].join('  ');
}

/** Formats a progress bar followed by {@link formatProgress}. Truncates the text to `columns`. */
export function formatProgressBar(exportRecord: ExportWithProgress, now: Date, columns: number): string {
  const fullCells = Math.round(barWidth * computeCompletedShare(exportRecord));
  const line = `${'█'.repeat(fullCells)}${'░'.repeat(barWidth - fullCells)}  ${formatProgress(exportRecord, now)}`;
  return line.length <= columns ? line : `${line.slice(0, Math.max(0, columns - 1))}…`;
}

/**
 * Formats the result of an export as text: the numbers of rows and files, the path of the files, and the failures of
 * each day.
 */
export function formatResult(exportRecord: ExportWithProgress, runs: readonly ExportRunWithFiles[]): string[] {
  const lines = [
    `${exportRecord.status}${formatTimeTaken(exportRecord)}: ${formatCount(exportRecord.rowsWritten, 'row')} in ${formatCount(exportRecord.files, 'file')}, ${formatBytes(exportRecord.bytesWritten)}.`,
  ];
  if (exportRecord.status !== 'COMPLETED' && exportRecord.statusReason !== null)
    lines.push(toPrintable(exportRecord.statusReason));
  if (exportRecord.files > 0) lines.push(`Files: ${toPrintable(runs[0]?.prefix ?? '')}`);
  if (exportRecord.lateRuns > 0) {
    const [were, are] = exportRecord.lateRuns === 1 ? ['run', 'is'] : ['runs', 'are'];
    lines.push(
      `${formatNumber(exportRecord.lateRuns)} ${were} of the range arrived after the export was created and ${are} not included.`,
    );
  }
  if (exportRecord.status !== 'COMPLETED') lines.push(...runs.flatMap(formatFailures));
  return lines;
}

/**
 * Formats the failed attempts of an export run. Consecutive attempts with the same cause share a line. Returns an empty
 * list if no attempt failed.
 */
export function formatFailures(run: ExportRunWithFiles): string[] {
  const failedAttempts = listFailedAttempts(run);
  if (failedAttempts.length === 0) return [];
  const lines = [
    `  ${run.startTime.slice(0, 10)} ${run.status}, ${formatCount(failedAttempts.length, 'attempt')} failed:`,
  ];
  let from = 0;
  for (const [index, { number, cause }] of failedAttempts.entries()) {
    if (failedAttempts[index + 1]?.cause === cause) continue;
    const first = failedAttempts[from]?.number ?? number;
    lines.push(
      `    ${first === number ? `attempt ${number}` : `attempts ${first} to ${number}`}: ${toPrintable(cause)}`,
    );
    from = index + 1;
  }
  return lines;
}

/** Returns the failed attempts of an export run in order, numbered from 1. */
export function listFailedAttempts({
  errors,
}: Pick<ExportRunWithFiles, 'errors'>): { number: number; cause: string }[] {
  return Object.entries(errors ?? {})
    .map(([name, cause]) => ({ number: Number(name.replace('retry_', '')) + 1, cause }))
    .sort((a, b) => a.number - b.number);
}

function formatTimeTaken({ startedAt, finishedAt }: ExportWithProgress): string {
  if (startedAt === null || finishedAt === null) return '';
  return ` in ${formatDuration(Math.max(0, Date.parse(finishedAt) - Date.parse(startedAt)) / 1_000)}`;
}

function formatCount(count: number, noun: string): string {
  return `${formatNumber(count)} ${noun}${count === 1 ? '' : 's'}`;
}
