import { type Static, Type } from 'typebox';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { Dictionary } from '../../infra/json/dictionary.ts';
import { deleteProjects } from '../../pipelines/projects/delete-projects.ts';
import {
  type ProjectWithStats,
  readProjectsWithStats,
  type StatOrder,
  type StatsListQuery,
  statOrders,
} from '../../pipelines/projects/list-by-stats.ts';
import { numberExperiments, parseProjectFilter, readProject } from '../../pipelines/projects/project.ts';
import {
  countExperimentRuns,
  readOwnFeedbackStats,
  readProjectStats,
  readTopMetadata,
} from '../../pipelines/projects/project-stats.ts';
import { resolveAddress } from '../../pipelines/projects/resolve-address.ts';
import { requireProjects } from '../../pipelines/runs/locate-run.ts';
import { findTaggedIds } from '../../pipelines/tags/taggings.ts';
import { requirePermission, type WorkspaceCaller } from '../../pipelines/tenants/caller.ts';
import { OneOf, parseOptionalTime, Text, Timestamp, Uuid } from '../server/formats.ts';
import {
  looksUpEmptyName,
  metadataParameter,
  nameParameters,
  pageParameters,
  parseMetadata,
  tagValueParameter,
} from '../server/list-parameters.ts';
import { defineOperation } from '../server/operation.ts';
import { clickhouseErrors } from '../server/operation-errors.ts';
import type { Services } from '../server/services.ts';
import { statSelects } from './run-stats.ts';
import {
  buildNullRecord,
  formatSessionStats,
  parseStatsFilter,
  selectSessionStats,
  selectsOwnFeedback,
  sessionFields,
  sessionStatsFields,
  statsParameters,
} from './session-stats.ts';

export const SessionParams = Type.Object({ session_id: Uuid() });

/** A project in responses to reads. */
const SessionWithStats = Type.Object({ ...sessionFields, ...sessionStatsFields });

const emptySession = buildNullRecord(SessionWithStats);

function formatSession({ project, ...read }: ProjectWithStats): Static<typeof SessionWithStats> {
  return { ...emptySession, ...project, ...formatSessionStats(read) } as unknown as Static<typeof SessionWithStats>;
}

const deleteSession = defineOperation({
  operationId: 'deleteSession',
  method: 'DELETE',
  path: '/sessions/:session_id',
  summary: 'Delete a tracing project with its runs',
  description: 'The name is available immediately. Runs are deleted in the background. Usage stays.',
  access: { permission: 'projects:delete', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: { params: SessionParams, response: { 200: Type.Object({ message: Type.String() }) } },
  handler: async ({ caller, params, services }) => {
    await deleteProjects(services, caller.workspaceId, [params.session_id]);
    return { message: 'Session deleted' };
  },
});

const deleteSessions = defineOperation({
  operationId: 'deleteSessions',
  method: 'DELETE',
  path: '/sessions',
  summary: 'Delete several tracing projects with their runs',
  description: 'Atomic: if one project does not exist, the response is 404 and nothing is deleted.',
  access: { permission: 'projects:delete', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: {
    query: Type.Object({ session_ids: Type.Array(Uuid(), { minItems: 1, maxItems: 100 }) }),
    response: { 200: Type.Object({ message: Type.String() }) },
  },
  handler: async ({ caller, query, services }) => {
    await deleteProjects(services, caller.workspaceId, query.session_ids);
    return { message: 'Sessions deleted' };
  },
});

const getSession = defineOperation({
  operationId: 'getSession',
  method: 'GET',
  path: '/sessions/:session_id',
  summary: 'Get a tracing project',
  access: { permission: 'projects:read', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', ...clickhouseErrors],
  schema: { params: SessionParams, query: Type.Object(statsParameters), response: { 200: SessionWithStats } },
  handler: async ({ caller, params, query, services }) =>
    formatSession(await readSession(services, caller, params.session_id, query)),
});

const canReadRuns = (caller: WorkspaceCaller) => caller.permissions.has('runs:read');

/**
 * Reads a project, with statistics if they are requested.
 *
 * @throws NOT_FOUND; FORBIDDEN if the caller may not read runs; errors of the stores.
 */
export async function readSession(
  services: Services,
  caller: WorkspaceCaller,
  id: string,
  query: { readonly include_stats?: boolean; readonly stats_start_time?: string },
): Promise<ProjectWithStats> {
  if (query.include_stats === true) requirePermission(caller, 'runs:read');
  const project = await readProject(services.database, caller.workspaceId, id);
  const numbers = await numberExperiments(services.database, caller.workspaceId, [project]);
  const testRunNumber = numbers.get(project.id);
  if (query.include_stats !== true) {
    const counts = canReadRuns(caller) ? await countExperimentRuns(services, caller.workspaceId, [project]) : undefined;
    return { project, testRunNumber, stats: counts?.get(project.id), ownFeedback: undefined };
  }
  const startedFromMicros = parseOptionalTime(query.stats_start_time);
  const runs = { tenantId: caller.workspaceId, projectIds: [project.id], startedFromMicros };
  const [stats, ownFeedback] = await Promise.all([
    readProjectStats(services, runs, selectSessionStats(undefined, true)),
    readOwnFeedbackStats(services.clickhouse, caller.workspaceId, [project.id]),
  ]);
  return { project, testRunNumber, stats: stats.get(project.id), ownFeedback: ownFeedback.get(project.id) };
}

/** Experiments of the SDKs have the version of their dataset as `dataset_version` in their metadata. */
export const datasetVersionParameter = Type.Optional(
  Type.String({
    maxLength: 512,
    description: 'Only experiments whose metadata has this `dataset_version`; a time in any notation.',
  }),
);

/** In contrast to `stats_filter`, whose fields are those of runs. */
export const projectFilterParameter = Type.Optional(
  Type.String({ description: 'Condition on the projects themselves, such as `eq(name, "a")`; see the guide.' }),
);

const sortOrders = ['start_time', 'name', ...(Object.keys(statOrders) as StatOrder[])] as const;

const Query = Type.Object({
  ...nameParameters,
  metadata: metadataParameter,
  tag_value_id: tagValueParameter,
  reference_free: Type.Optional(
    Type.Boolean({ description: 'true: without experiments on datasets; false: only experiments.' }),
  ),
  reference_dataset: Type.Optional(Type.Array(Uuid(), { maxItems: 1_000 })),
  dataset_version: datasetVersionParameter,
  ...statsParameters,
  stats_select: Type.Optional(
    Type.Array(OneOf(statSelects), {
      maxItems: 200,
      description: 'Default: all.',
    }),
  ),
  stats_filter: Type.Optional(Type.String({ description: 'Statistics of root runs that match; see the guide.' })),
  use_approx_stats: Type.Optional(Type.Boolean({ description: 'Accepted; statistics are always exact.' })),
  facets: Type.Boolean({ default: false, description: 'Whether the statistics have `run_facets`.' }),
  filter: projectFilterParameter,
  sort_by: OneOf(sortOrders, { default: 'start_time', description: 'Projects without a value are last.' }),
  sort_by_desc: Type.Boolean({ default: true }),
  sort_by_feedback_key: Type.Optional(
    Type.String({ description: 'For `sort_by=feedback`: the key whose average orders the projects.' }),
  ),
  sort_by_feedback_source: Type.Optional(
    OneOf(['run', 'session'], {
      description: 'For `sort_by=feedback`: the feedback on root runs (default), or on the projects themselves.',
    }),
  ),
  ...pageParameters,
});

/** Parameters of the list of projects that have the same name and meaning in both versions. */
type SharedParameter =
  | 'id'
  | 'name'
  | 'name_contains'
  | 'metadata'
  | 'dataset_version'
  | 'tag_value_id'
  | 'filter'
  | 'include_stats'
  | 'stats_start_time'
  | 'stats_filter'
  | 'sort_by_feedback_key';
type SharedQuery = { readonly [Name in SharedParameter]?: Static<typeof Query>[Name] | undefined } & {
  readonly stats_select?: Parameters<typeof selectSessionStats>[0];
};

/**
 * Reads a page of projects, with statistics if they are requested.
 *
 * @throws FORBIDDEN if the request needs runs that the caller may not read; BAD_REQUEST; INVALID_FILTER; errors of the
 *   stores.
 */
export async function readSessions(
  services: Services,
  caller: WorkspaceCaller,
  query: SharedQuery,
  options: Pick<StatsListQuery, 'sortBy' | 'descending' | 'limit' | 'offset'> &
    Pick<StatsListQuery, 'feedbackSource'> &
    Pick<StatsListQuery['conditions'], 'referenceFree' | 'referenceDatasetIds'> & { readonly includeFacets: boolean },
): Promise<ProjectWithStats[]> {
  const { referenceFree, referenceDatasetIds, includeFacets, ...page } = options;
  const readsRuns = query.include_stats === true || Object.hasOwn(statOrders, page.sortBy);
  if (readsRuns) requirePermission(caller, 'runs:read');
  if (page.sortBy === 'feedback' && query.sort_by_feedback_key === undefined)
    throw runlakeError('BAD_REQUEST', { reason: 'Sorting by feedback needs `sort_by_feedback_key`.' });
  const list: StatsListQuery = {
    ...page,
    conditions: {
      ids: await findTaggedIds(services.database, caller.workspaceId, query.tag_value_id, query.id),
      name: query.name,
      nameContains: query.name_contains,
      metadata: parseMetadata(query.metadata),
      datasetVersion: query.dataset_version,
      referenceFree,
      referenceDatasetIds,
      condition: query.filter ? parseProjectFilter(query.filter) : undefined,
    },
    feedbackKey: query.sort_by_feedback_key,
    runs: {
      startedFromMicros: parseOptionalTime(query.stats_start_time),
      conditions: parseStatsFilter(query.stats_filter),
    },
  };
  const countsExperiment = query.name !== undefined && canReadRuns(caller);
  const selected = {
    ofRuns:
      query.include_stats === true
        ? selectSessionStats(query.stats_select, includeFacets)
        : countsExperiment
          ? ('experiment-count' as const)
          : undefined,
    ownFeedback: query.include_stats === true && selectsOwnFeedback(query.stats_select),
  };
  return readProjectsWithStats(services, caller.workspaceId, list, selected);
}

const listSessions = defineOperation({
  operationId: 'listSessions',
  method: 'GET',
  path: '/sessions',
  summary: 'List the tracing projects of the workspace',
  description:
    'The list is empty if no project has the given name; an empty name counts only in a request without `offset`.',
  access: { permission: 'projects:read', tenantScope: 'workspace' },
  errors: ['ANSWER_TOO_LARGE', 'BAD_REQUEST', 'INVALID_FILTER', 'SEARCH_TOO_SLOW', ...clickhouseErrors],
  schema: { query: Query, response: { 200: Type.Array(SessionWithStats) } },
  handler: async ({ caller, query, services, request }) => {
    if (looksUpEmptyName(request)) return [];
    const found = await readSessions(services, caller, query, {
      referenceFree: query.reference_free,
      referenceDatasetIds: query.reference_dataset,
      includeFacets: query.facets,
      sortBy: query.sort_by,
      feedbackSource: query.sort_by_feedback_source,
      descending: query.sort_by_desc,
      limit: query.limit,
      offset: query.offset,
    });
    return found.map(formatSession);
  },
});

const getSessionMetadata = defineOperation({
  operationId: 'getSessionMetadata',
  method: 'GET',
  path: '/sessions/:session_id/metadata',
  summary: 'Get the most frequent metadata values of the runs of a tracing project',
  description: 'By key. Nested keys are joined by dots.',
  access: { permission: 'runs:read', tenantScope: 'workspace' },
  errors: ['ANSWER_TOO_LARGE', 'NOT_FOUND', ...clickhouseErrors],
  schema: {
    params: SessionParams,
    query: Type.Object({
      metadata_keys: Type.Optional(Type.Array(Type.String(), { maxItems: 1_000, description: 'Default: all.' })),
      start_time: Type.Optional(Timestamp({ description: 'Runs that started at or after this time.' })),
      k: Type.Integer({ minimum: 1, maximum: 1_000, default: 10, description: 'Maximum number of values of a key.' }),
      root_runs_only: Type.Boolean({ default: false }),
    }),
    response: { 200: Dictionary(Type.Array(Type.String())) },
  },
  handler: async ({ caller, params, query, services }) => {
    const projectId = params.session_id.toLowerCase();
    await requireProjects(services.database, caller.workspaceId, [projectId]);
    const values = await readTopMetadata(services.clickhouse, {
      tenantId: caller.workspaceId,
      projectId,
      keys: query.metadata_keys,
      startedFromMicros: parseOptionalTime(query.start_time),
      rootsOnly: query.root_runs_only,
      maxValues: query.k,
      maxBytes: services.config.maxPageBytes,
    });
    return Object.fromEntries(values);
  },
});

const AddressQuery = Type.Object({
  kind: Text({
    maxLength: 32,
    description:
      'AGENT; EXPERIMENT; or EVALUATOR, the project `evaluators`, to which SDKs trace evaluators. Case-insensitive.',
  }),
  id: Type.Optional(Text({ maxLength: 64, description: 'Id of the agent, or of the experiment.' })),
  environment: Type.Optional(
    Text({ maxLength: 32, description: 'Of an agent: LOCAL, DEVELOPMENT, STAGING or PRODUCTION. Case-insensitive.' }),
  ),
});

/** `GET /sessions/resolutions`: newer SDKs call it for the URL of a run that was sent with an address. */
const resolveSession = defineOperation({
  operationId: 'resolveSession',
  method: 'GET',
  path: '/sessions/resolutions',
  summary: 'Get the tracing project that an address names',
  description:
    'The runs of an agent in an environment are in one project, which the first run creates as `<id>/<environment>`. It ' +
    'keeps its address when it is renamed. 404 if there is no such project.',
  access: { permission: 'projects:read', tenantScope: 'workspace' },
  errors: ['BAD_REQUEST', 'NOT_FOUND'],
  schema: {
    query: AddressQuery,
    response: { 200: Type.Object({ session_id: Uuid({ description: 'Id of the project.' }) }) },
  },
  handler: async ({ caller, query, services }) => ({
    session_id: await resolveAddress(services.database, caller.workspaceId, query),
  }),
});

export const sessionOperations = [
  listSessions,
  deleteSessions,
  resolveSession,
  getSession,
  getSessionMetadata,
  deleteSession,
];
