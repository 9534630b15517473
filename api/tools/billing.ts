import { isRunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import { exportStatuses } from '../../pipelines/exports/record.ts';
import { isUuid } from '../../pipelines/ingest/run-event/uuid.ts';
import { groupings } from '../../pipelines/usage/report-query.ts';
import { describeLimit, findProjectId, maxLimit, pick, type StoredRecord } from './find-named.ts';
import { type GranularUsage, readGranularUsage } from './granular-usage.ts';
import type { MainApi } from './main-api.ts';
import { choice, flag, integer, list, text, time } from './parameters.ts';
import { defineTool } from './tool.ts';

interface Workspace {
  readonly id: string;
  readonly display_name: string;
  readonly is_deleted?: boolean;
}

interface Metric extends StoredRecord {
  readonly value?: number | null;
  readonly groups?: Readonly<Record<string, number>> | null;
}

export const getBillingUsage = defineTool({
  name: 'get_billing_usage',
  title: 'Get billing usage',
  description:
    'Get the billable usage of the organization in a date range: the number of traces, in total and by workspace (groups: workspace ' +
    'id to workspace_name and value). For usage over time, or by project, user or API key, use query_usage.',
  parameters: {
    starting_on: text({ description: 'Start of the range, ISO 8601.', examples: ['2026-01-01'] }).required(),
    ending_before: text({ description: 'End of the range, not included, ISO 8601.' }).required(),
    workspace: text({ description: 'Only this workspace, by its id or name. Default: all.' }).optional(),
    on_current_plan: flag({ description: 'Accepted; there is only one plan.' }).default(true, 'true'),
  },
  output: { usage: { type: 'array', items: { type: 'object' } } },
  run: async (values, { api }) => {
    const { starting_on, ending_before, on_current_plan, workspace } = values;
    const [usage, workspaces] = await Promise.all([
      withStatus(api.get('/orgs/current/billing/usage', { starting_on, ending_before, on_current_plan })),
      listWorkspaces(api).catch((error: unknown) => {
        // If the key may not list workspaces, the result has their ids instead of their names.
        if (!isForbidden(error) || (workspace !== undefined && !isUuid(workspace))) throw error;
        return undefined;
      }),
    ]);
    if (!Array.isArray(usage) || usage.length === 0)
      throw runlakeError('TOOL_FOUND_NOTHING', { reason: 'Unexpected billing usage response' });
    const only =
      workspace && (workspaces === undefined ? workspace.toLowerCase() : findWorkspace(workspaces, workspace).id);
    const names = new Map(workspaces?.map(({ id, display_name: name }) => [id, name]));
    return { usage: (usage as Metric[]).map((metric) => nameGroups(metric, names, only)) };
  },
});

/** Adds the status to the message of an error response, as clients of the original expect. */
async function withStatus<T>(response: Promise<T>): Promise<T> {
  try {
    return await response;
  } catch (error) {
    if (!isRunlakeError(error) || error.code !== 'TOOL_REQUEST_FAILED') throw error;
    throw runlakeError(
      'TOOL_REQUEST_FAILED',
      { reason: `HTTP ${error.status}: ${error.message}` },
      { status: error.status },
    );
  }
}

const isForbidden = (error: unknown) => isRunlakeError(error) && error.status === 403;

/**
 * Lists the workspaces that the key has access to, deleted ones last: their usage stays, and their names may be reused.
 */
async function listWorkspaces(api: MainApi): Promise<Workspace[]> {
  const all = (await withStatus(api.get('/workspaces', { include_deleted: true }))) as Workspace[];
  return [...all.filter((each) => !each.is_deleted), ...all.filter((each) => each.is_deleted)];
}

/** @throws NOT_FOUND */
function findWorkspace(workspaces: readonly Workspace[], idOrName: string): Workspace {
  const wanted = idOrName.trim().toLowerCase();
  const found =
    workspaces.find(({ id }) => id === wanted) ??
    workspaces.find(({ display_name: name }) => name.toLowerCase() === wanted);
  if (found === undefined) throw runlakeError('NOT_FOUND', { what: `Workspace ${idOrName}` });
  return found;
}

/**
 * Replaces the ids of workspaces in the groups of a metric with their names. With `only`, keeps only this workspace.
 */
function nameGroups(metric: Metric, names: ReadonlyMap<string, string>, only: string | undefined): StoredRecord {
  const groups = Object.entries(metric.groups ?? {}).filter(([id]) => only === undefined || id === only);
  return {
    ...metric,
    ...(only !== undefined && { value: groups.reduce((sum, [, value]) => sum + value, 0) }),
    groups: Object.fromEntries(groups.map(([id, value]) => [id, { workspace_name: names.get(id) ?? id, value }])),
  };
}

export const queryUsage = defineTool({
  name: 'query_usage',
  title: 'Query usage over time',
  description:
    'Get the number of billable traces per time bucket, by workspace, project, user or API key. Buckets are an hour for ranges below ' +
    'one day, a day up to 31 days, a week up to 93 days, 30 days up to 366 days. The result begins with the total; if there are more ' +
    'than limit rows, those with the most traces are returned.',
  parameters: {
    start_time: time({ description: 'Start of the range, ISO 8601.', examples: ['2026-01-05T00:00:00Z'] }).required(),
    end_time: time({ description: 'End of the range, ISO 8601.' }).required(),
    group_by: choice(groupings, { description: 'What to count by.' }).default('workspace'),
    workspaces: list({
      description: 'Only these workspaces, by id or name. Default: all that the key has access to.',
    }).optional(),
    limit: integer({ description: 'Maximum number of rows.', minimum: 1 }).default(50),
  },
  output: {
    total_traces: { type: 'integer', description: 'Of all rows, also beyond limit.' },
    total_rows: { type: 'integer' },
    stride: { type: 'object', description: 'Size of a bucket.' },
    usage: { type: 'array', items: { type: 'object' } },
  },
  run: async (values, { api }) => {
    const { start_time, end_time, group_by, workspaces, limit } = values;
    const ids = workspaces?.every(isUuid) ? workspaces : selectWorkspaces(await listWorkspaces(api), workspaces);
    const { stride, usage } = await readGranularUsage(ids, async (workspace_ids) => {
      const query = { start_time, end_time, group_by, workspace_ids };
      return (await api.get('/orgs/current/billing/granular-usage', query)) as GranularUsage;
    });
    const kept = new Set([...usage].sort((a, b) => b.traces - a.traces).slice(0, limit));
    return {
      total_traces: usage.reduce((sum, { traces }) => sum + traces, 0),
      total_rows: usage.length,
      stride,
      usage: usage.filter((row) => kept.has(row)),
    };
  },
});

function selectWorkspaces(all: readonly Workspace[], wanted: readonly string[] | undefined): string[] {
  return (wanted?.map((each) => findWorkspace(all, each)) ?? all).map(({ id }) => id);
}

const exportFields = [
  'id',
  'status',
  'status_reason',
  'session_id',
  'start_time',
  'end_time',
  'interval_hours',
  'created_at',
  'finished_at',
];
const shownStatuses = exportStatuses.map((status) => status.toLowerCase());

export const listExports = defineTool({
  name: 'list_exports',
  title: 'List bulk exports',
  description:
    'List the bulk exports of the workspace (runs written as Parquet files to a bucket), newest first, with status and progress. An ' +
    'export with interval_hours is a schedule, which creates other exports.',
  parameters: {
    status: choice(shownStatuses, { description: 'Only exports with this status.' }).optional(),
    project_name: text({ description: 'Only exports of this project, by its name or id.' }).optional(),
    limit: integer({ description: 'Maximum number of exports; more than 100 count as 100.', minimum: 1 }).default(10),
  },
  output: { exports: { type: 'array', items: { type: 'object' } } },
  run: async ({ status, project_name: project, limit }, { api }) => {
    const found = (await api.get('/bulk-exports', {
      status: status?.toUpperCase(),
      session_id: project === undefined ? undefined : await findProjectId(api, project),
      limit: Math.min(limit, maxLimit),
    })) as StoredRecord[];
    const exports = found.map((each) => {
      const { runs_total, runs_completed, share_done, rows_written, files, late_runs } = (each.progress ??
        {}) as StoredRecord;
      return {
        ...pick(each, exportFields),
        progress: { runs_total, runs_completed, share_done, rows_written, files, late_runs },
      };
    });
    return { exports, ...describeLimit(limit) };
  },
});
