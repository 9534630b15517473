import { setTimeout as pause } from 'node:timers/promises';
import { isRunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import {
  type ExportRunWithFiles,
  type ExportWithProgress,
  listExportRuns,
  readExport,
} from '../../../pipelines/exports/queries.ts';
import { isFinished } from '../../../pipelines/exports/states.ts';
import { type ExportAccess, withExports } from './export-access.ts';
import { attemptsOf, endInWords } from './export-end.ts';
import { findExport } from './find-by-name.ts';
import { openScreen } from './watch-screen.ts';

const everyMs = 250;
/** How long to retry while the stores are unavailable. */
const retryForMs = 60_000;
const pageRows = 1_000;

/** `runlake export watch <id>` */
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
 * Shows the progress of an export until it ends, then its result. The exit code is 0 only if the export is COMPLETED,
 * and 130 if SIGINT stopped the watching.
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
      const of = await retryWhileAway(
        () => readExport(database, workspaceId, id),
        stopped.signal,
        () => screen.note(`The stores do not answer; retrying for ${retryForMs / 1_000} s.`),
      );
      if (of !== undefined) {
        const over = isFinished(of.status);
        const runs = over || of.retries > retries ? await listAllRuns({ database }, of) : [];
        retries = of.retries;
        if (!over) for (const line of newFailures(runs, reported)) screen.note(line);
        screen.show(of, deps.now());
        if (over) {
          screen.end(endInWords(of, runs));
          if (of.status !== 'COMPLETED') process.exitCode = 1;
          return;
        }
        await pause(everyMs, undefined, { signal: stopped.signal }).catch(() => undefined);
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

/** Retries `ask` while the stores are unavailable and calls `onAway` once. Undefined if `signal` is aborted. */
async function retryWhileAway<Answer>(
  ask: () => Promise<Answer>,
  signal: AbortSignal,
  onAway: () => void,
): Promise<Answer | undefined> {
  const untilMs = performance.now() + retryForMs;
  let reported = false;
  while (!signal.aborted) {
    try {
      return await ask();
    } catch (error) {
      if (!isRunlakeError(error) || !error.retryable || performance.now() > untilMs) throw error;
      if (!reported) onAway();
      reported = true;
    }
    await pause(everyMs, undefined, { signal }).catch(() => undefined);
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

function newFailures(runs: readonly ExportRunWithFiles[], reported: Set<string>): string[] {
  return runs.flatMap((run) =>
    attemptsOf(run).flatMap(({ number, cause }) => {
      const name = `${run.id}/${number}`;
      if (reported.has(name)) return [];
      reported.add(name);
      return [`${run.startTime.slice(0, 10)}: attempt ${number} failed, retrying: ${cause}`];
    }),
  );
}
