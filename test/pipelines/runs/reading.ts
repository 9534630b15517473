import { randomUUID } from 'node:crypto';
import type { Config } from '../../../infra/config/settings.ts';
import type { ReadDeps } from '../../../pipelines/runs/locate-run.ts';
import { queryRuns, type RunQuery, v1Envelope } from '../../../pipelines/runs/query-runs.ts';
import type { RunExtras } from '../../../pipelines/runs/run-columns.ts';
import { type SelectName, selectFields } from '../../../pipelines/runs/run-select.ts';
import { type FreshStores, freshStores } from '../../engines/stores.ts';
import { deriveUuid, otherProjectId, projectId, tenantId } from './run-events.ts';

export const noExtras: RunExtras = {
  feedbackStats: async () => new Map(),
  attachmentUrls: async () => new Map(),
  shares: async () => new Map(),
  uses: async () => new Map(),
  datasets: async () => new Map(),
};

export interface Reading {
  readonly stores: FreshStores;
  readonly deps: ReadDeps;
  /** Creates a project in the first workspace and returns its id. */
  newProject(id?: string): Promise<string>;
  /** Returns a parsed page. */
  page(query?: TestQuery, deps?: Partial<ReadDeps>): Promise<Page>;
  /** Returns the runs of all pages, in order, and the page sizes. */
  all(query?: TestQuery, deps?: Partial<ReadDeps>): Promise<{ ids: string[]; sizes: number[] }>;
  close(): Promise<void>;
}

export interface Page {
  readonly runs: readonly Record<string, unknown>[];
  readonly cursors: { readonly next: string | null };
}

export const foreignTenantId = deriveUuid('foreign tenant');
export const foreignProjectId = deriveUuid('foreign project');
export const deletedProjectId = deriveUuid('deleted project');

/** A query with a list of fields instead of a selection. */
export type TestQuery = Partial<RunQuery> & { readonly select?: readonly SelectName[] };

export function wholeQuery({ select, ...query }: TestQuery): RunQuery {
  return { tenantId, filter: {}, selected: selectFields(select), order: 'desc', limitRows: 100, ...query };
}

/**
 * Opens stores with two workspaces: one with two existing projects and a deleted project, and one of another
 * organisation.
 */
export async function openReading(extras: RunExtras = noExtras): Promise<Reading> {
  const stores = await freshStores();
  const { database, clickhouse } = stores;
  const organizationId = randomUUID();
  await database.execute('INSERT INTO organizations (id, display_name) VALUES ($1, $2)', [organizationId, 'test']);
  for (const id of [tenantId, foreignTenantId]) {
    await database.execute('INSERT INTO workspaces (id, organization_id, display_name) VALUES ($1, $2, $3)', [
      id,
      organizationId,
      id,
    ]);
  }
  for (const [workspaceId, id, deleted] of [
    [tenantId, projectId, false],
    [tenantId, otherProjectId, false],
    [tenantId, deletedProjectId, true],
    [foreignTenantId, foreignProjectId, false],
  ]) {
    await database.execute(
      'INSERT INTO projects (id, workspace_id, name, deleted_at) VALUES ($1, $2, $3, CASE WHEN $4 THEN now() END)',
      [id, workspaceId, id, deleted],
    );
  }
  const config: Pick<Config, 'maxPageBytes'> = { maxPageBytes: 64 * 1024 * 1024 };
  const deps: ReadDeps = { clickhouse, database, extras, config };

  async function newProject(id: string = randomUUID()): Promise<string> {
    await database.execute('INSERT INTO projects (id, workspace_id, name) VALUES ($1, $2, $3)', [id, tenantId, id]);
    return id;
  }

  async function page(query: TestQuery = {}, other: Partial<ReadDeps> = {}): Promise<Page> {
    return JSON.parse((await queryRuns({ ...deps, ...other }, wholeQuery(query), v1Envelope)).toString());
  }

  async function all(query: TestQuery = {}, other: Partial<ReadDeps> = {}) {
    const ids: string[] = [];
    const sizes: number[] = [];
    for (let cursor: string | undefined; ; ) {
      const { runs, cursors } = await page({ ...query, cursor }, other);
      ids.push(...runs.map((run) => String(run.id)));
      sizes.push(runs.length);
      if (cursors.next === null) return { ids, sizes };
      cursor = cursors.next;
    }
  }
  return { stores, deps, newProject, page, all, close: stores.close };
}
