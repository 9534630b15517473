import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { readClock } from '../../../pipelines/exports/export-deps.ts';
import { type ExportWithProgress, listExports } from '../../../pipelines/exports/queries.ts';
import type { ExportStatus } from '../../../pipelines/exports/record.ts';
import { listProjects } from '../../../pipelines/projects/project.ts';
import { formatExport } from '../../main/bulk-exports.ts';
import { formatBytes, formatNumber } from '../format-figures.ts';
import { parseLimit } from '../parse-options.ts';
import { findWorkspaces, isId, type NamedRecord } from '../pick-named.ts';
import { printTable, toPrintable } from '../print-table.ts';
import { type ExportAccess, findProject, listAllDestinations, withExports } from './export-access.ts';

export interface ListOptions {
  readonly status?: ExportStatus;
  readonly project?: string;
  readonly source?: string;
  readonly schedules?: boolean;
  readonly limit: string;
  readonly workspace?: string;
  readonly json?: boolean;
}

const maxExports = 1_000;

/** Runs `runlake export list`. */
export async function printExports(options: ListOptions): Promise<void> {
  const limit = parseLimit(options.limit, maxExports);
  const { source } = options;
  if (source !== undefined && !isId(source)) {
    throw runlakeError('BAD_REQUEST', {
      reason: `--source must be the id of a schedule, not '${toPrintable(source)}'.`,
    });
  }
  await withExports(async (access) => {
    const workspaces = await findWorkspaces(access, options.workspace);
    if (options.project !== undefined && workspaces.length > 1) {
      throw runlakeError('BAD_REQUEST', {
        reason: 'There are several workspaces. With --project, specify --workspace.',
      });
    }
    const found: ExportWithProgress[] = [];
    for (const workspace of workspaces) {
      const project =
        options.project === undefined ? undefined : await findProject(access.database, workspace, options.project);
      const filter = {
        statuses: options.status === undefined ? undefined : [options.status],
        projectId: project?.id,
        sourceExportId: source,
        scheduled: options.schedules,
        limit,
        offset: 0,
      };
      found.push(...(await listExports(access.database, workspace.id, filter)));
    }
    const newestExports = found.sort((a, b) => b.createdAt.localeCompare(a.createdAt)).slice(0, limit);
    if (options.json === true) {
      const now = await readClock(access.deps);
      for (const each of newestExports) console.log(JSON.stringify(formatExport(each, now)));
    } else if (newestExports.length === 0) console.log('No matching exports.');
    else await printExportTable(access, workspaces, newestExports);
  });
}

async function printExportTable(
  access: ExportAccess,
  workspaces: readonly NamedRecord[],
  exports: readonly ExportWithProgress[],
) {
  const names = new Map(workspaces.map(({ id, name }) => [id, name]));
  for (const { id } of workspaces) {
    const ids = exports.flatMap(({ workspaceId, projectId }) => (workspaceId === id ? projectId : []));
    if (ids.length === 0) continue;
    const all = { sortBy: 'name', descending: false, limit: maxExports, offset: 0 } as const;
    for (const project of await listProjects(access.database, id, { ...all, ids })) names.set(project.id, project.name);
    for (const destination of await listAllDestinations(access.database, id))
      names.set(destination.id, destination.display_name);
  }
  const formatName = (id: string) => names.get(id) ?? `${id.slice(0, 8)}… (deleted)`;
  const hasSeveralWorkspaces = workspaces.length > 1;
  printTable([
    [
      'ID',
      'STATUS',
      ...(hasSeveralWorkspaces ? ['WORKSPACE'] : []),
      'PROJECT',
      'DESTINATION',
      'FROM',
      'UNTIL',
      'ROWS',
      'SIZE',
    ],
    ...exports.map((each) => [
      each.id,
      each.intervalHours === null ? each.status : `${each.status} every ${each.intervalHours} h`,
      ...(hasSeveralWorkspaces ? [formatName(each.workspaceId)] : []),
      formatName(each.projectId),
      formatName(each.destinationId),
      formatMinute(each.startTime),
      each.endTime === null ? '' : formatMinute(each.endTime),
      each.intervalHours === null ? formatNumber(each.rowsWritten) : '',
      each.intervalHours === null ? formatBytes(each.bytesWritten) : '',
    ]),
  ]);
}

function formatMinute(time: string): string {
  return `${time.slice(0, 16)}Z`;
}
