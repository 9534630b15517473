import type { WriteStream } from 'node:tty';
import { isRunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import { pause } from '../../../infra/timeouts/backoff.ts';
import { readClock } from '../../../pipelines/exports/export-deps.ts';
import {
  type ExportRunWithFiles,
  type ExportWithProgress,
  estimateRate,
  listExportRuns,
  readExport,
  shareDone,
} from '../../../pipelines/exports/queries.ts';
import { isFinished } from '../../../pipelines/exports/states.ts';
import { formatExport } from '../../main/bulk-exports.ts';
import { printable } from '../print-table.ts';
import { type ExportAccess, findExport, withExports } from './export-access.ts';

const pollIntervalMs = 250;
/** Maximum time to retry while the stores are unavailable. */
const maxRetryMs = 60_000;
const pageRows = 1_000;

/** Runs `runlake export watch <id>`. */
export async function watchOne(id: string, { json = false }: { readonly json?: boolean }): Promise<void> {
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
  const reported = new Set<string>();
  try {
    let retries = 0;
    for (;;) {
      const of = await retryWhileUnavailable(
        () => readExport(database, workspaceId, id),
        stopped.signal,
        () => screen.note(`The stores do not answer; retrying for ${maxRetryMs / 1_000} s.`),
      );
      if (of !== undefined) {
        const over = isFinished(of.status);
        const runs = over || of.retries > retries ? await listAllRuns({ database }, of) : [];
        retries = of.retries;
        if (!over) for (const line of listNewFailures(runs, reported)) screen.note(line);
        screen.show(of, await readClock(deps));
        if (over) {
          screen.end(formatResult(of, runs));
          if (of.status !== 'COMPLETED') process.exitCode = 1;
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
  ask: () => Promise<Answer>,
  signal: AbortSignal,
  onUnavailable: () => void,
): Promise<Answer | undefined> {
  const untilMs = performance.now() + maxRetryMs;
  let reported = false;
  while (!signal.aborted) {
    try {
      return await ask();
    } catch (error) {
      if (!isRunlakeError(error) || !error.retryable || performance.now() > untilMs) throw error;
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
  show(of: ExportWithProgress, now: Date): void;
  /** Prints a line that is not overwritten. */
  note(line: string): void;
  end(lines: readonly string[]): void;
}

type Output = Pick<NodeJS.WriteStream, 'write'> & Partial<Pick<WriteStream, 'isTTY' | 'columns'>>;

const clearLine = '\r\x1b[K';
const plainLineIntervalMs = 10_000;

/**
 * Opens the output. On a terminal, it shows a progress bar. Otherwise it prints a line for each 10 % of progress, at
 * each change of status, and every ten seconds. With `json`, it prints one object per change.
 */
export function openScreen(output: Output, json: boolean): WatchScreen {
  if (json) return createJsonScreen(output);
  return output.isTTY === true ? createBarScreen(output) : createPlainScreen(output);
}

function createBarScreen(output: Output): WatchScreen {
  return {
    // One column stays free, because some terminals wrap a full line. Some terminals report no width or 0.
    show: (of, now) => output.write(`${clearLine}${printable(formatProgressBar(of, now, (output.columns || 80) - 1))}`),
    note: (line) => output.write(`${clearLine}${printable(line)}\n`),
    end: (lines) => output.write(`\n${lines.join('\n')}\n`),
  };
}

function createPlainScreen(output: Output): WatchScreen {
  let before = '';
  let lastPrintedMs = 0;
  return {
    show: (of, now) => {
      const step = `${of.status} ${of.statusReason} ${Math.floor(shareDone(of) * 10)}`;
      if (step === before && now.getTime() - lastPrintedMs < plainLineIntervalMs) return;
      before = step;
      lastPrintedMs = now.getTime();
      output.write(`${printable(formatProgress(of, now))}\n`);
    },
    note: (line) => output.write(`${printable(line)}\n`),
    end: (lines) => output.write(`${lines.join('\n')}\n`),
  };
}

function createJsonScreen(output: Output): WatchScreen {
  let before = '';
  return {
    show: (of, now) => {
      // The rate and the remaining time change constantly, so they are printed only together with another change.
      const snapshot = JSON.stringify(of);
      if (snapshot === before) return;
      before = snapshot;
      output.write(`${JSON.stringify(formatExport(of, now))}\n`);
    },
    note: () => undefined,
    end: () => undefined,
  };
}

const barCells = 24;

/**
 * Formats progress as `40 % 1,200 of 3,000 rows 1.2 MB 800 rows/s 3 s left`. If the export has not started, returns the
 * reason.
 */
export function formatProgress(of: ExportWithProgress, now: Date): string {
  if (of.status === 'CREATED') return of.statusReason ?? 'Waiting for a worker.';
  const { rowsPerSecond, secondsLeft } = estimateRate(of, now);
  const counted = of.runsTotal > 0 && of.runsCounted === of.runsTotal;
  const rows = formatNumber(of.rowsWritten);
  return [
    `${Math.floor(shareDone(of) * 100)} %`,
    `${counted ? `${rows} of ${formatNumber(of.rowsCounted)}` : rows} rows`,
    ...(of.runsTotal > 1 ? [`${of.runsCompleted} of ${of.runsTotal} days`] : []),
    formatBytes(of.bytesWritten),
    ...(rowsPerSecond === undefined ? [] : [`${formatNumber(rowsPerSecond)} rows/s`]),
    ...(secondsLeft === undefined || of.status === 'COMPLETED' ? [] : [`${formatDuration(secondsLeft)} left`]),
  ].join('  ');
}

/** Formats a progress bar followed by {@link formatProgress}. Truncates the text to `columns`. */
export function formatProgressBar(of: ExportWithProgress, now: Date, columns: number): string {
  const full = Math.round(barCells * shareDone(of));
  const line = `${'█'.repeat(full)}${'░'.repeat(barCells - full)}  ${formatProgress(of, now)}`;
  return line.length <= columns ? line : `${line.slice(0, Math.max(0, columns - 1))}…`;
}

/**
 * Formats the result of an export as text: the numbers of rows and files, the path of the files, and the failures of
 * each day.
 */
export function formatResult(of: ExportWithProgress, runs: readonly ExportRunWithFiles[]): string[] {
  const lines = [
    `${of.status}${formatTimeTaken(of)}: ${counted(of.rowsWritten, 'row')} in ${counted(of.files, 'file')}, ${formatBytes(of.bytesWritten)}.`,
  ];
  if (of.status !== 'COMPLETED' && of.statusReason !== null) lines.push(printable(of.statusReason));
  if (of.files > 0) lines.push(`Files: ${printable(runs[0]?.prefix ?? '')}`);
  if (of.lateRuns > 0) {
    const [were, are] = of.lateRuns === 1 ? ['run', 'is'] : ['runs', 'are'];
    lines.push(
      `${formatNumber(of.lateRuns)} ${were} of the range arrived after the export was created and ${are} not included.`,
    );
  }
  if (of.status !== 'COMPLETED') lines.push(...runs.flatMap(formatFailures));
  return lines;
}

/**
 * Formats the failed attempts of an export run. Consecutive attempts with the same cause share a line. Returns an empty
 * list if no attempt failed.
 */
export function formatFailures(run: ExportRunWithFiles): string[] {
  const causes = listFailedAttempts(run);
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

function counted(count: number, what: string): string {
  return `${formatNumber(count)} ${what}${count === 1 ? '' : 's'}`;
}

/** Formats a number as `1,234`. */
export function formatNumber(value: number): string {
  return Math.round(value).toLocaleString('en-US');
}

/**
 * Formats a number of bytes as `900 B` or `1.2 MB`. Uses decimal units, and at least two significant digits above 1 kB.
 */
export function formatBytes(bytes: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
  let value = bytes;
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1_000;
    unit++;
  }
  return `${unit > 0 && value < 9.95 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/** Formats a duration as `0.4 s`, `12 s`, `3 min 20 s` or `2 h 05 min`. */
export function formatDuration(seconds: number): string {
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  const padTwoDigits = (value: number) => String(value).padStart(2, '0');
  if (whole < 3_600) return `${Math.floor(whole / 60)} min ${padTwoDigits(whole % 60)} s`;
  const minutes = Math.round(whole / 60);
  return `${Math.floor(minutes / 60)} h ${padTwoDigits(minutes % 60)} min`;
}
