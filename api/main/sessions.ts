import { type Static, Type } from 'typebox';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { deleteProjects } from '../../pipelines/projects/delete-projects.ts';
import {
  type ProjectWithStats,
  readProjectsWithStats,
  type StatOrder,
  type StatsListQuery,
  statOrders,
} from '../../pipelines/projects/list-by-stats.ts';
import { maxNameLength, type ProjectRecord, readProject } from '../../pipelines/projects/project.ts';
import {
  type FeedbackStats,
  readOwnFeedbackStats,
  readProjectStats,
  readTopMetadata,
} from '../../pipelines/projects/project-stats.ts';
import { createProject, updateProject } from '../../pipelines/projects/write-project.ts';
import { checkLonglivedDays } from '../../pipelines/retention/lifetimes.ts';
import { requireProjects } from '../../pipelines/runs/locate-run.ts';
import type { RunStats } from '../../pipelines/runs/stats/stat-names.ts';
import { findTaggedIds } from '../../pipelines/tags/taggings.ts';
import { requirePermission, type WorkspaceCaller } from '../../pipelines/tenants/caller.ts';
import { JsonObject, OneOf, optional, parseOptionalTime, Text, Timestamp, Uuid } from '../server/formats.ts';
import {
  metadataParameter,
  newTagsField,
  pageParameters,
  parseMetadata,
  tagValueParameter,
} from '../server/list-parameters.ts';
import { defineOperation } from '../server/operation.ts';
import { clickhouseErrors } from '../server/operation-errors.ts';
import type { Services } from '../server/services.ts';
import { statSelects } from './run-stats.ts';
import {
  formatSessionStats,
  parseSessionFilter,
  selectSessionStats,
  selectsOwnFeedback,
  sessionFields,
  sessionStatsFields,
  statsParameters,
} from './session-stats.ts';

const TraceTier = Type.Union([Type.Literal('longlived'), Type.Literal('shortlived')]);
const Name = Text({ minLength: 1, maxLength: maxNameLength });
const Description = Text({ maxLength: 100_000 });

/** A count that is stored as a 32-bit integer. */
const Count = (description: string) => Type.Integer({ minimum: 0, maximum: 2 ** 31 - 1, description });

const SessionParams = Type.Object({ session_id: Uuid() });

/** Fields that a client can set when it creates a project and can change later. */
const changeableFields = {
  description: optional(Description),
  extra: optional(JsonObject({ description: 'Any JSON object; `metadata` in it is searchable.' })),
  end_time: optional(Timestamp()),
  default_dataset_id: optional(Uuid()),
  trace_tier: optional(TraceTier),
  longlived_ttl_days: optional(Type.Integer({ minimum: 1, maximum: 36_500 }), {
    description:
      'Days that longlived traces are kept, between those of the tiers of the installation. Null: as long as it keeps them.',
  }),
};

const NewSession = Type.Object({
  id: optional(Uuid()),
  name: Name,
  start_time: optional(Timestamp()),
  reference_dataset_id: optional(Uuid()),
  num_examples: optional(Count('Number of examples of an experiment.')),
  num_repetitions: optional(Count('Number of repetitions of each example in an experiment.')),
  evaluator_keys: optional(Type.Array(Text({ maxLength: 1_000 }), { maxItems: 1_000 })),
  tag_value_ids: newTagsField,
  ...changeableFields,
});

const SessionChange = Type.Object({ name: optional(Name), ...changeableFields });

/** A project in responses to changes. */
const Session = Type.Object(sessionFields);

/** A project in responses to reads. */
const SessionWithStats = Type.Object({ ...sessionFields, ...sessionStatsFields });

function formatSession(project: ProjectRecord) {
  return { ...project, last_run_start_time_live: null };
}

function formatSessionWithStats(
  project: ProjectRecord,
  stats?: RunStats,
  ownFeedback?: FeedbackStats,
): Static<typeof SessionWithStats> {
  return { ...formatSession(project), ...formatSessionStats(stats, ownFeedback) } as Static<typeof SessionWithStats>;
}

export const createSession = defineOperation({
  operationId: 'createSession',
  method: 'POST',
  path: '/sessions',
  tag: 'projects',
  summary: 'Create a tracing project',
  description:
    'With `upsert`, an existing project with that name is updated: given fields replace its fields, except for an empty `extra`.',
  access: { permission: 'projects:create', tenantScope: 'workspace' },
  errors: ['CONFLICT', 'LIMIT_REACHED', 'NOT_FOUND', 'RETENTION_OUT_OF_RANGE'],
  schema: {
    query: Type.Object({ upsert: Type.Boolean({ default: false }) }),
    body: NewSession,
    response: { 200: Session },
  },
  handler: async ({ caller, query, body, services }) => {
    checkLonglivedDays(services.config, body.longlived_ttl_days);
    if (body.tag_value_ids?.length) requirePermission(caller, 'tags:manage');
    const project = {
      id: body.id,
      name: body.name,
      description: body.description,
      extra: body.extra,
      startTime: body.start_time,
      endTime: body.end_time,
      defaultDatasetId: body.default_dataset_id,
      referenceDatasetId: body.reference_dataset_id,
      traceTier: body.trace_tier,
      longlivedTtlDays: body.longlived_ttl_days,
      numExamples: body.num_examples,
      numRepetitions: body.num_repetitions,
      evaluatorKeys: body.evaluator_keys,
      tagValueIds: body.tag_value_ids,
    };
    return formatSession(
      await createProject(services.database, caller.workspaceId, project, {
        upsert: query.upsert,
        maxProjects: services.config.maxProjects,
      }),
    );
  },
});

export const deleteSession = defineOperation({
  operationId: 'deleteSession',
  method: 'DELETE',
  path: '/sessions/:session_id',
  tag: 'projects',
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

export const deleteSessions = defineOperation({
  operationId: 'deleteSessions',
  method: 'DELETE',
  path: '/sessions',
  tag: 'projects',
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

export const getSession = defineOperation({
  operationId: 'getSession',
  method: 'GET',
  path: '/sessions/:session_id',
  tag: 'projects',
  summary: 'Get a tracing project',
  access: { permission: 'projects:read', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', ...clickhouseErrors],
  schema: { params: SessionParams, query: Type.Object(statsParameters), response: { 200: SessionWithStats } },
  handler: async ({ caller, params, query, services }) => {
    if (query.include_stats === true) requirePermission(caller, 'runs:read');
    const project = await readProject(services.database, caller.workspaceId, params.session_id);
    if (query.include_stats !== true) return formatSessionWithStats(project);
    const startedFromMicros = parseOptionalTime(query.stats_start_time);
    const runs = { tenantId: caller.workspaceId, projectIds: [project.id], startedFromMicros };
    const [stats, ownFeedback] = await Promise.all([
      readProjectStats(services, runs, selectSessionStats(undefined, true)),
      readOwnFeedbackStats(services.clickhouse, caller.workspaceId, [project.id]),
    ]);
    return formatSessionWithStats(project, stats.get(project.id), ownFeedback.get(project.id));
  },
});

/** Experiments of the SDKs have the version of their dataset as `dataset_version` in their metadata. */
export const datasetVersionParameter = Type.Optional(
  Type.String({ maxLength: 512, description: 'Only experiments whose metadata has this `dataset_version`.' }),
);

const sortOrders = ['start_time', 'name', ...(Object.keys(statOrders) as StatOrder[])] as const;

const Query = Type.Object({
  id: Type.Optional(Type.Array(Uuid(), { maxItems: 1_000 })),
  name: Type.Optional(Type.String()),
  name_contains: Type.Optional(Type.String({ description: 'Case-insensitive.' })),
  metadata: metadataParameter,
  tag_value_id: tagValueParameter,
  reference_free: Type.Optional(
    Type.Boolean({ description: 'true: without experiments on datasets; false: only experiments.' }),
  ),
  reference_dataset: Type.Optional(Type.Array(Uuid(), { maxItems: 1_000 })),
  dataset_version: datasetVersionParameter,
  ...statsParameters,
  stats_select: Type.Optional(
    Type.Array(Type.Union(statSelects.map((name) => Type.Literal(name))), {
      maxItems: 200,
      description: 'Default: all.',
    }),
  ),
  stats_filter: Type.Optional(Type.String({ description: 'Statistics of root runs that match; see the guide.' })),
  use_approx_stats: Type.Optional(Type.Boolean({ description: 'Accepted; statistics are always exact.' })),
  facets: Type.Boolean({ default: false, description: 'Whether the statistics have `run_facets`.' }),
  filter: Type.Optional(Type.String({ description: 'Only projects with a root run that matches; see the guide.' })),
  sort_by: Type.Union(
    sortOrders.map((order) => Type.Literal(order)),
    { default: 'start_time', description: 'Projects without a value are last.' },
  ),
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
  const readsRuns = query.include_stats === true || query.filter || Object.hasOwn(statOrders, page.sortBy);
  if (readsRuns) requirePermission(caller, 'runs:read');
  if (page.sortBy === 'feedback' && query.sort_by_feedback_key === undefined)
    throw runlakeError('BAD_REQUEST', { reason: 'Sorting by feedback needs `sort_by_feedback_key`.' });
  const list: StatsListQuery = {
    ...page,
    conditions: {
      ids: await findTaggedIds(services.database, caller.workspaceId, query.tag_value_id, query.id),
      name: query.name,
      nameContains: query.name_contains,
      metadata:
        query.dataset_version === undefined
          ? parseMetadata(query.metadata)
          : { ...parseMetadata(query.metadata), dataset_version: query.dataset_version },
      referenceFree,
      referenceDatasetIds,
    },
    rootRunConditions: parseSessionFilter('filter', query.filter),
    feedbackKey: query.sort_by_feedback_key,
    runs: {
      startedFromMicros: parseOptionalTime(query.stats_start_time),
      conditions: parseSessionFilter('stats_filter', query.stats_filter),
    },
  };
  const selected = {
    ofRuns: query.include_stats === true ? selectSessionStats(query.stats_select, includeFacets) : undefined,
    ownFeedback: query.include_stats === true && selectsOwnFeedback(query.stats_select),
  };
  return readProjectsWithStats(services, caller.workspaceId, list, selected);
}

export const listSessions = defineOperation({
  operationId: 'listSessions',
  method: 'GET',
  path: '/sessions',
  tag: 'projects',
  summary: 'List the tracing projects of the workspace',
  description: 'The list is empty if no project has the given name.',
  access: { permission: 'projects:read', tenantScope: 'workspace' },
  errors: ['ANSWER_TOO_LARGE', 'BAD_REQUEST', 'INVALID_FILTER', ...clickhouseErrors],
  schema: { query: Query, response: { 200: Type.Array(SessionWithStats) } },
  handler: async ({ caller, query, services }) => {
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
    return found.map(({ project, stats, ownFeedback }) => formatSessionWithStats(project, stats, ownFeedback));
  },
});

export const getSessionMetadata = defineOperation({
  operationId: 'getSessionMetadata',
  method: 'GET',
  path: '/sessions/:session_id/metadata',
  tag: 'projects',
  summary: 'Get the most frequent metadata values of the runs of a tracing project',
  description: 'By key. Nested keys are joined by dots.',
  access: { permission: 'runs:read', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', ...clickhouseErrors],
  schema: {
    params: SessionParams,
    query: Type.Object({
      metadata_keys: Type.Optional(Type.Array(Type.String(), { maxItems: 1_000, description: 'Default: all.' })),
      start_time: Type.Optional(Timestamp({ description: 'Runs that started at or after this time.' })),
      k: Type.Integer({ minimum: 1, maximum: 1_000, default: 10, description: 'Maximum number of values of a key.' }),
      root_runs_only: Type.Boolean({ default: false }),
    }),
    response: { 200: Type.Record(Type.String(), Type.Array(Type.String())) },
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
    });
    return Object.fromEntries(values);
  },
});

export const updateSession = defineOperation({
  operationId: 'updateSession',
  method: 'PATCH',
  path: '/sessions/:session_id',
  tag: 'projects',
  summary: 'Update a tracing project',
  description:
    'Absent and null fields stay unchanged, except that a null `longlived_ttl_days` removes the value. After a rename, patches of runs with the old name are still stored in the project.',
  access: { permission: 'projects:update', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', 'CONFLICT', 'RETENTION_OUT_OF_RANGE'],
  schema: { params: SessionParams, body: SessionChange, response: { 200: Session } },
  handler: async ({ caller, params, body, services }) => {
    checkLonglivedDays(services.config, body.longlived_ttl_days);
    const change = {
      name: body.name,
      description: body.description,
      extra: body.extra,
      endTime: body.end_time,
      defaultDatasetId: body.default_dataset_id,
      traceTier: body.trace_tier,
      longlivedTtlDays: body.longlived_ttl_days,
    };
    return formatSession(await updateProject(services, caller.workspaceId, params.session_id, change));
  },
});
