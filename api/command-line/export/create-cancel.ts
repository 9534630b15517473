import { isRunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import { cancelExport, createExport } from '../../../pipelines/exports/create-cancel.ts';
import { readClock } from '../../../pipelines/exports/export-deps.ts';
import type { ExportFormat } from '../../../pipelines/exports/record.ts';
import { formatExport } from '../../main/bulk-exports.ts';
import { formatNumber } from '../format-figures.ts';
import { parseTimeOption } from '../parse-options.ts';
import { toPrintable } from '../print-table.ts';
import { findDestination, findExport, findProject, findWorkspace, withExports } from './export-access.ts';
import { watchUntilEnd } from './watch.ts';

/** Times that `--start` and `--end` accept, for messages. */
const dayOrTime = '2026-01-31 or 2026-01-31T12:00:00Z';

export interface CreateOptions {
  readonly project: string;
  readonly destination: string;
  readonly start: string;
  readonly end?: string;
  readonly intervalHours?: string;
  readonly filter?: string;
  readonly fields?: string;
  readonly formatVersion: ExportFormat['version'];
  readonly compression: ExportFormat['compression'];
  readonly workspace?: string;
  readonly watch?: boolean;
  readonly json?: boolean;
}

/** The command-line option that corresponds to each field of the API request. */
const optionByField: Readonly<Record<string, string>> = {
  start_time: '--start',
  end_time: '--end',
  interval_hours: '--interval-hours',
  export_fields: '--fields',
};

/** Runs `runlake export create`. With --watch, the exit code is 0 only if the export is COMPLETED. */
export async function createExportFromOptions(options: CreateOptions): Promise<void> {
  const startTimeMicros = parseTimeOption('--start', options.start, dayOrTime);
  const endTimeMicros = options.end === undefined ? undefined : parseTimeOption('--end', options.end, dayOrTime);
  const intervalHours = options.intervalHours === undefined ? undefined : parseHours(options.intervalHours);
  if (endTimeMicros === undefined && intervalHours === undefined) {
    throw runlakeError('BAD_REQUEST', { reason: 'Specify --end, or --interval-hours for a schedule.' });
  }
  if (options.watch === true && intervalHours !== undefined) {
    throw runlakeError('BAD_REQUEST', { reason: '--watch requires --end; a schedule never ends.' });
  }
  const exportFields = options.fields?.split(',').flatMap((name) => name.trim() || []);
  await withExports(async (access) => {
    const { database, operator, deps } = access;
    const workspace = await findWorkspace(access, options.workspace);
    const project = await findProject(database, workspace, options.project);
    const destination = await findDestination(database, workspace, options.destination);
    const made = await createExport(
      deps,
      { workspaceId: workspace.id, keyId: operator.keyId },
      {
        destinationId: destination.id,
        projectId: project.id,
        startTimeMicros,
        endTimeMicros,
        intervalHours,
        filter: options.filter || undefined,
        formatVersion: options.formatVersion,
        compression: options.compression,
        exportFields,
      },
    ).catch((error: unknown) => {
      throw toOptionError(error);
    });
    if (options.json === true) console.log(JSON.stringify(formatExport(made, await readClock(deps))));
    else if (options.watch === true) console.log(`Export ${made.id} of ${toPrintable(project.name)}`);
    else {
      console.error(
        intervalHours === undefined
          ? `Export created. To watch it: runlake export watch ${made.id}`
          : `Schedule created. To list its exports: runlake export list --source ${made.id}`,
      );
      console.log(made.id);
    }
    if (options.watch === true) await watchUntilEnd(access, made, { json: options.json === true });
  });
}

/** Replaces the field names in a validation error with the names of the command-line options. */
function toOptionError(error: unknown): unknown {
  if (!isRunlakeError(error) || error.fields === undefined) return error;
  const reasons = error.fields.map(({ loc, msg }) => {
    const field = String(loc.at(-1));
    const message = Object.entries(optionByField).reduce((text, [name, option]) => text.replaceAll(name, option), msg);
    return `${optionByField[field] ?? field}: ${message}.`;
  });
  return runlakeError('BAD_REQUEST', { reason: toPrintable(reasons.join(' ')) });
}

function parseHours(text: string): number {
  const hours = Number(text);
  if (/^\d{1,3}$/.test(text) && hours >= 1 && hours <= 168) return hours;
  const reason = `--interval-hours must be a whole number from 1 to 168, not '${toPrintable(text)}'.`;
  throw runlakeError('BAD_REQUEST', { reason });
}

/**
 * Runs `runlake export cancel <id>`. Workers stop within about two seconds. Files that are already complete are kept.
 */
export async function cancelExportById(id: string, { json = false }: { readonly json?: boolean }): Promise<void> {
  await withExports(async (access) => {
    const { workspaceId } = await findExport(access, id);
    const cancelledExport = await cancelExport(access.deps, workspaceId, id);
    if (json) console.log(JSON.stringify(formatExport(cancelledExport, await readClock(access.deps))));
    else if (cancelledExport.intervalHours !== null) {
      console.log(`The schedule ${cancelledExport.id} is cancelled; exports that it created continue.`);
    } else {
      const finishedFiles =
        cancelledExport.files === 1
          ? '1 finished file stays'
          : `${formatNumber(cancelledExport.files)} finished files stay`;
      console.log(
        `The export ${cancelledExport.id} is cancelled; ${finishedFiles} (${formatNumber(cancelledExport.rowsWritten)} rows).`,
      );
    }
  });
}
