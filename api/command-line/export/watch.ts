import { setTimeout as pause } from 'node:timers/promises';
import { fault, isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import { isFinished } from '../../../pipelines/exports/export-states.ts';
import { type ExportRunWithFiles, listExportRuns } from '../../../pipelines/exports/list-export-runs.ts';
import { type ExportWithProgress, readExport } from '../../../pipelines/exports/read-export.ts';
import { type ExportAccess, withExports } from './export-access.ts';
import { attemptsOf, endInWords } from './export-end.ts';
import { findExport } from './find-by-name.ts';
import { openScreen } from './watch-screen.ts';

const everyMs = 250;
/** How long the stores may be away meanwhile. */
const patienceMs = 60_000;
const pageRows = 1_000;

/** `runlake export watch <id>` */
export async function watchOne(id: string, { json = false }: { readonly json?: boolean }): Promise<void> {
  await withExports(async (access) => {
    const found = await findExport(access, id);
    if (found.intervalHours !== null) {
      const reason = `${found.id} is a schedule, which has no end: watch what it spawns, see \`runlake export list --source ${found.id}\`.`;
      throw fault('BAD_REQUEST', { reason });
    }
    await watchUntilEnd(access, found, { json });
  });
}

/**
 * Shows how an export goes until it has ended, and how it ended. Leaves the exit code at 0 only if it is COMPLETED; at 130
 * where SIGINT ended the watching.
 */
export async function watchUntilEnd(
  { database, ports }: ExportAccess,
  { id, workspaceId }: ExportWithProgress,
  { json }: { readonly json: boolean },
): Promise<void> {
  const screen = openScreen(process.stdout, json);
  const stopped = new AbortController();
  const stop = () => stopped.abort();
  process.once('SIGINT', stop);
  const told = new Set<string>();
  try {
    let retries = 0;
    for (;;) {
      const of = await patiently(
        () => readExport(database, workspaceId, id),
        stopped.signal,
        () => screen.note(`The stores do not answer; they are asked again for ${patienceMs / 1_000} s.`),
      );
      if (of !== undefined) {
        const over = isFinished(of.status);
        const runs = over || of.retries > retries ? await everyRun({ database }, of) : [];
        retries = of.retries;
        if (!over) for (const line of newFailures(runs, told)) screen.note(line);
        screen.show(of, ports.now());
        if (over) {
          screen.end(endInWords(of, runs));
          if (of.status !== 'COMPLETED') process.exitCode = 1;
          return;
        }
        await pause(everyMs, undefined, { signal: stopped.signal }).catch(() => undefined);
      }
      if (stopped.signal.aborted) {
        screen.end([`The export goes on; to watch it again: runlake export watch ${id}`]);
        process.exitCode = 130;
        return;
      }
    }
  } finally {
    process.removeListener('SIGINT', stop);
  }
}

/** Asks again while the stores are away, which is told once. Undefined where the watching was ended meanwhile. */
async function patiently<Answer>(
  ask: () => Promise<Answer>,
  signal: AbortSignal,
  tellAway: () => void,
): Promise<Answer | undefined> {
  const untilMs = performance.now() + patienceMs;
  let told = false;
  while (!signal.aborted) {
    try {
      return await ask();
    } catch (error) {
      if (!isRunlakeError(error) || !error.retryable || performance.now() > untilMs) throw error;
      if (!told) tellAway();
      told = true;
    }
    await pause(everyMs, undefined, { signal }).catch(() => undefined);
  }
  return undefined;
}

async function everyRun(
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

function newFailures(runs: readonly ExportRunWithFiles[], told: Set<string>): string[] {
  return runs.flatMap((run) =>
    attemptsOf(run).flatMap(({ number, cause }) => {
      const name = `${run.id}/${number}`;
      if (told.has(name)) return [];
      told.add(name);
      return [`${run.startTime.slice(0, 10)}: attempt ${number} failed and is made again: ${cause}`];
    }),
  );
}
