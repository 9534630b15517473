import { OpenedOnce } from '../../../infra/cache/opened-once.ts';
import type { Config } from '../../../infra/config/settings.ts';
import { isRunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import { readLogPosition } from '../../../infra/event-log/in-process/log-table.ts';
import type { Database } from '../../../infra/postgres/pool.ts';
import { type DestinationRecord, listDestinations } from '../../../pipelines/exports/destinations/destination.ts';
import type { ExportDeps } from '../../../pipelines/exports/export-deps.ts';
import { type ExportWithProgress, readExport } from '../../../pipelines/exports/queries.ts';
import { listProjects } from '../../../pipelines/projects/project.ts';
import type { Caller } from '../../../pipelines/tenants/caller.ts';
import { loadOperator } from '../../../pipelines/tenants/operator.ts';
import { withStores } from '../open-stores.ts';
import { findWorkspaces, formatNames, isId, type NamedRecord, pickByNameOrId } from '../pick-named.ts';
import { toPrintable } from '../print-table.ts';

/** Dependencies of the bulk export commands. The commands have the permissions of the operator. */
export interface ExportAccess {
  readonly config: Config;
  readonly database: Database;
  readonly operator: Caller;
  /**
   * Dependencies for creating and cancelling exports. The job queue and Kafka (if configured) are connected at first
   * use.
   */
  readonly deps: ExportDeps;
}

/**
 * Opens the dependencies of a bulk export command, and closes them when `work` has finished.
 *
 * @throws NOT_RUNNING and the errors of the dependencies.
 */
export async function withExports<Result>(work: (access: ExportAccess) => Promise<Result>): Promise<Result> {
  return withStores('export', async ({ config, logger, stores, openJobs, shutdown }) => {
    const { database } = stores;
    const kafka = new OpenedOnce(async () => {
      const { openEventLog } = await import('../open-event-log.ts');
      return (await openEventLog({ config, logger, stores }, shutdown)).log;
    });
    // Only the running process can open the in-process log.
    const log: ExportDeps['log'] = {
      position: async (topic) =>
        config.kafkaBrokers === undefined
          ? readLogPosition(stores.clickhouse, topic.name)
          : (await kafka.get()).position(topic),
    };
    const operator = await loadOperator(database);
    const deps: ExportDeps = {
      database,
      log,
      jobs: { enqueue: async (...job) => (await openJobs()).enqueue(...job) },
      limits: config,
      logger,
    };
    return work({ config, database, operator, deps });
  });
}

const rowsPerPage = 1_000;

/**
 * Returns the workspace that a command applies to.
 *
 * @throws BAD_REQUEST if there are several workspaces and `nameOrId` is undefined.
 */
export async function findWorkspace(access: ExportAccess, nameOrId?: string): Promise<NamedRecord> {
  const found = await findWorkspaces(access, nameOrId);
  if (found.length === 1) return found[0] as NamedRecord;
  throw runlakeError('BAD_REQUEST', {
    reason: `There are several workspaces. Specify --workspace: ${formatNames(found)}.`,
  });
}

/** Finds a project of a workspace by name or id. @throws BAD_REQUEST if the workspace has no such project. */
export async function findProject(database: Database, workspace: NamedRecord, nameOrId: string): Promise<NamedRecord> {
  const all = { sortBy: 'name', descending: false, limit: rowsPerPage, offset: 0 } as const;
  const ids = isId(nameOrId) ? [nameOrId] : undefined;
  const [byId] = ids ? await listProjects(database, workspace.id, { ...all, ids }) : [];
  const [found = byId] = await listProjects(database, workspace.id, { ...all, name: nameOrId });
  return (
    found ??
    pickByNameOrId(
      `project in the workspace ${workspace.name}`,
      nameOrId,
      await listProjects(database, workspace.id, all),
    )
  );
}

/**
 * Finds a destination of a workspace by name or id.
 *
 * @throws BAD_REQUEST if the workspace has no such destination, or several with that name.
 */
export async function findDestination(
  database: Database,
  workspace: NamedRecord,
  nameOrId: string,
): Promise<NamedRecord> {
  const all = (await listAllDestinations(database, workspace.id)).map(({ id, display_name: name }) => ({ id, name }));
  if (all.length === 0) {
    const reason = `The workspace ${toPrintable(workspace.name)} has no destinations. Create one with \`runlake export destinations create\`.`;
    throw runlakeError('BAD_REQUEST', { reason });
  }
  return pickByNameOrId(`destination in the workspace ${workspace.name}`, nameOrId, all);
}

export async function listAllDestinations(database: Database, workspaceId: string): Promise<DestinationRecord[]> {
  const found: DestinationRecord[] = [];
  for (;;) {
    const page = await listDestinations(database, workspaceId, { limit: rowsPerPage, offset: found.length });
    found.push(...page);
    if (page.length < rowsPerPage) return found;
  }
}

/** Finds an export by id in all workspaces of the operator. @throws BAD_REQUEST if there is none. */
export async function findExport({ database, operator }: ExportAccess, id: string): Promise<ExportWithProgress> {
  for (const workspaceId of isId(id) ? operator.readableWorkspaceIds : []) {
    try {
      return await readExport(database, workspaceId, id);
    } catch (error) {
      if (!isRunlakeError(error) || error.code !== 'NOT_FOUND') throw error;
    }
  }
  throw runlakeError('BAD_REQUEST', { reason: `No export ${toPrintable(id)}. See \`runlake export list\`.` });
}
