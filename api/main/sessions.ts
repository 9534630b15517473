import { Type } from 'typebox';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { deleteProjects } from '../../pipelines/projects/delete-projects.ts';
import { listProjects, maxNameLength, type ProjectRecord, readProject } from '../../pipelines/projects/project.ts';
import { createProject, updateProject } from '../../pipelines/projects/write-project.ts';
import { JsonObject, nullable, optional, Text, Timestamp, Uuid } from '../server/formats.ts';
import { metadataParameter, pageParameters, parseMetadata } from '../server/list-parameters.ts';
import { defineOperation } from '../server/operation.ts';

const TraceTier = Type.Union([Type.Literal('longlived'), Type.Literal('shortlived')]);
const Name = Text({ minLength: 1, maxLength: maxNameLength });
const Description = Text({ maxLength: 100_000 });

/** A count that is stored as a 32-bit integer. */
const Count = (description: string) => Type.Integer({ minimum: 0, maximum: 2 ** 31 - 1, description });

const SessionParams = Type.Object({ session_id: Uuid() });

/** Fields that a client can set when it creates a project, and change later. */
const changeableFields = {
  description: optional(Description),
  extra: optional(JsonObject({ description: 'Any JSON object; `metadata` in it is searchable.' })),
  end_time: optional(Timestamp()),
  default_dataset_id: optional(Uuid()),
  trace_tier: optional(TraceTier),
};

const NewSession = Type.Object({
  id: optional(Uuid()),
  name: Name,
  start_time: optional(Timestamp()),
  reference_dataset_id: optional(Uuid()),
  num_examples: optional(Count('Number of examples of an experiment.')),
  num_repetitions: optional(Count('Number of repetitions of each example in an experiment.')),
  evaluator_keys: optional(Type.Array(Text({ maxLength: 1_000 }), { maxItems: 1_000 })),
  ...changeableFields,
});

const SessionChange = Type.Object({ name: optional(Name), ...changeableFields });

const fields = {
  id: Uuid(),
  tenant_id: Uuid({ description: 'Id of the workspace.' }),
  name: Type.String(),
  description: nullable(Type.String()),
  extra: nullable(JsonObject()),
  start_time: Timestamp(),
  end_time: nullable(Timestamp()),
  default_dataset_id: nullable(Uuid()),
  reference_dataset_id: nullable(Uuid()),
  trace_tier: nullable(Type.String()),
  num_examples: nullable(Type.Integer()),
  num_repetitions: nullable(Type.Integer()),
  evaluator_keys: nullable(Type.Array(Type.String())),
  last_run_start_time_live: Type.Null(),
};

/** A project in responses to changes. */
const Session = Type.Object(fields);

/**
 * Names of the run statistics that clients expect in a project. The server does not compute them yet, so all are null.
 */
const statisticNames = [
  'run_count',
  'latency_p50',
  'latency_p99',
  'first_token_p50',
  'first_token_p99',
  'total_tokens',
  'prompt_tokens',
  'completion_tokens',
  'total_cost',
  'prompt_cost',
  'completion_cost',
  'last_run_start_time',
  'feedback_stats',
  'session_feedback_stats',
  'run_facets',
  'error_rate',
  'streaming_rate',
  'test_run_number',
] as const;

type Statistics = Record<(typeof statisticNames)[number], null>;

function forEachStatistic<T>(value: T): Record<(typeof statisticNames)[number], T> {
  return Object.fromEntries(statisticNames.map((name) => [name, value])) as Record<(typeof statisticNames)[number], T>;
}

const noStatistics: Statistics = forEachStatistic(null);

/** A project in responses to reads. */
const SessionWithStatistics = Type.Object({
  ...fields,
  ...forEachStatistic(Type.Null({ description: 'Not computed yet; always null, also with include_stats.' })),
});

function formatSession(project: ProjectRecord) {
  return { ...project, last_run_start_time_live: null };
}

function formatSessionWithStatistics(project: ProjectRecord) {
  return { ...formatSession(project), ...noStatistics };
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
  unsupported: { body: ['tag_value_ids'] },
  errors: ['CONFLICT', 'LIMIT_REACHED'],
  schema: {
    query: Type.Object({ upsert: Type.Boolean({ default: false }) }),
    body: NewSession,
    response: { 200: Session },
  },
  handler: async ({ caller, query, body, services }) => {
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
      numExamples: body.num_examples,
      numRepetitions: body.num_repetitions,
      evaluatorKeys: body.evaluator_keys,
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
  unsupported: { query: ['stats_start_time'] },
  errors: ['NOT_FOUND'],
  schema: {
    params: SessionParams,
    query: Type.Object({
      include_stats: Type.Optional(
        Type.Boolean({ description: 'Accepted; statistics are not computed yet and null.' }),
      ),
    }),
    response: { 200: SessionWithStatistics },
  },
  handler: async ({ caller, params, services }) =>
    formatSessionWithStatistics(await readProject(services.database, caller.workspaceId, params.session_id)),
});

/** Sort orders that need statistics of runs. */
const unsupportedOrders = ['last_run_start_time', 'latency_p50', 'latency_p99', 'error_rate', 'feedback', 'runs_count'];

const Query = Type.Object({
  id: Type.Optional(Type.Array(Uuid(), { maxItems: 1_000 })),
  name: Type.Optional(Type.String()),
  name_contains: Type.Optional(Type.String({ description: 'Case-insensitive.' })),
  metadata: metadataParameter,
  reference_free: Type.Optional(
    Type.Boolean({ description: 'true: without experiments on datasets; false: only experiments.' }),
  ),
  reference_dataset: Type.Optional(Type.Array(Uuid(), { maxItems: 1_000 })),
  include_stats: Type.Optional(Type.Boolean({ description: 'Accepted; statistics are not computed yet and null.' })),
  sort_by: Type.Union(
    ['start_time', 'name', ...unsupportedOrders].map((order) => Type.Literal(order)),
    { default: 'start_time', description: '`start_time` or `name`. Other values are not supported yet.' },
  ),
  sort_by_desc: Type.Boolean({ default: true }),
  ...pageParameters,
});

export const listSessions = defineOperation({
  operationId: 'listSessions',
  method: 'GET',
  path: '/sessions',
  tag: 'projects',
  summary: 'List the tracing projects of the workspace',
  description: 'The list is empty if no project has the given name.',
  access: { permission: 'projects:read', tenantScope: 'workspace' },
  unsupported: {
    query: [
      'dataset_version',
      'facets',
      'filter',
      'sort_by_feedback_key',
      'sort_by_feedback_source',
      'stats_filter',
      'stats_select',
      'stats_start_time',
      'tag_value_id',
      'use_approx_stats',
    ],
    flags: ['facets', 'use_approx_stats'],
  },
  schema: { query: Query, response: { 200: Type.Array(SessionWithStatistics) } },
  handler: async ({ caller, query, services }) => {
    const sortBy = query.sort_by;
    if (sortBy !== 'name' && sortBy !== 'start_time') {
      throw runlakeError('PARAMETER_NOT_SUPPORTED', { parameter: `sort_by=${sortBy}` });
    }
    const projects = await listProjects(services.database, caller.workspaceId, {
      ids: query.id,
      name: query.name,
      nameContains: query.name_contains,
      metadata: parseMetadata(query.metadata),
      referenceFree: query.reference_free,
      referenceDatasetIds: query.reference_dataset,
      sortBy,
      descending: query.sort_by_desc,
      limit: query.limit,
      offset: query.offset,
    });
    return projects.map(formatSessionWithStatistics);
  },
});

export const updateSession = defineOperation({
  operationId: 'updateSession',
  method: 'PATCH',
  path: '/sessions/:session_id',
  tag: 'projects',
  summary: 'Update a tracing project',
  description:
    'Absent and null fields stay unchanged. After a rename, patches of runs with the old name are still stored in the project.',
  access: { permission: 'projects:update', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', 'CONFLICT'],
  schema: { params: SessionParams, body: SessionChange, response: { 200: Session } },
  handler: async ({ caller, params, body, services }) => {
    const change = {
      name: body.name,
      description: body.description,
      extra: body.extra,
      endTime: body.end_time,
      defaultDatasetId: body.default_dataset_id,
      traceTier: body.trace_tier,
    };
    return formatSession(await updateProject(services, caller.workspaceId, params.session_id, change));
  },
});
