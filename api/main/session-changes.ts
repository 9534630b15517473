/** Operations that create and change tracing projects, in the forms of both versions. */
import { type Static, Type } from 'typebox';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { maxNameLength, type ProjectRecord } from '../../pipelines/projects/project.ts';
import { createProject, type ProjectChange, updateProject } from '../../pipelines/projects/write-project.ts';
import { checkLonglivedDays } from '../../pipelines/retention/lifetimes.ts';
import { requirePermission, type WorkspaceCaller } from '../../pipelines/tenants/caller.ts';
import { JsonObject, OneOf, optional, Text, Timestamp, Uuid } from '../server/formats.ts';
import { newTagsField } from '../server/list-parameters.ts';
import { defineOperation } from '../server/operation.ts';
import type { Services } from '../server/services.ts';
import { sessionFields } from './session-stats.ts';
import { SessionParams } from './sessions.ts';
import { formatV2Session, sessionTypes, V2Session, type V2Tier, v2Tiers } from './v2-sessions.ts';

const TraceTier = OneOf(['longlived', 'shortlived']);
const Name = Text({ minLength: 1, maxLength: maxNameLength });
const Description = Text({ maxLength: 100_000 });

/** A count that is stored as a 32-bit integer. */
const Count = (description: string) => Type.Integer({ minimum: 0, maximum: 2 ** 31 - 1, description });

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

const OptionalV2Tier = Type.Optional(OneOf(Object.values(v2Tiers)));
const NewV2Session = Type.Object({
  ...NewSession.properties,
  type: OneOf(sessionTypes, { description: '`EXPERIMENT` needs `reference_dataset_id`. `AGENT` is not built.' }),
  trace_tier: OptionalV2Tier,
});
const V2SessionChange = Type.Object({ ...changeableFields, name: Type.Optional(Name), trace_tier: OptionalV2Tier });

/** A project in responses to changes. */
const Session = Type.Object(sessionFields);

const formatSession = (project: ProjectRecord) => ({ ...project, last_run_start_time_live: null });

const fromV2Tier = (tier: V2Tier | undefined) =>
  tier && (tier === v2Tiers.longlived ? ('longlived' as const) : ('shortlived' as const));

async function storeSession(
  services: Services,
  caller: WorkspaceCaller,
  body: Static<typeof NewSession>,
  upsert: boolean,
): Promise<ProjectRecord> {
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
  const limits = { upsert, maxProjects: services.config.maxProjects };
  return createProject(services.database, caller.workspaceId, project, limits);
}

const creation = {
  method: 'POST',
  summary: 'Create a tracing project',
  description:
    'With `upsert`, an existing project with that name is updated: given fields replace its fields, except for an empty `extra`.',
  access: { permission: 'projects:create', tenantScope: 'workspace' },
  errors: ['BAD_REQUEST', 'CONFLICT', 'LIMIT_REACHED', 'NOT_FOUND', 'RETENTION_OUT_OF_RANGE'],
} as const;
const CreationQuery = Type.Object({ upsert: Type.Boolean({ default: false }) });

const createSession = defineOperation({
  ...creation,
  operationId: 'createSession',
  path: '/sessions',
  exactFields: ['extra'],
  schema: { query: CreationQuery, body: NewSession, response: { 200: Session } },
  handler: async ({ caller, query, body, services }) =>
    formatSession(await storeSession(services, caller, body, query.upsert)),
});

/** Why a session cannot have the type, which must agree with its other fields. */
const typeReasons = {
  PROJECT: 'A session of the type PROJECT needs no `reference_dataset_id`.',
  EXPERIMENT: 'A session of the type EXPERIMENT needs `reference_dataset_id`.',
  AGENT: 'Agents are not built: use the type `PROJECT`.',
};

const createV2Session = defineOperation({
  ...creation,
  operationId: 'createV2Session',
  path: '/v2/sessions',
  errorStyle: 'problem',
  exactFields: ['extra'],
  schema: { query: CreationQuery, body: NewV2Session, response: { 200: V2Session } },
  handler: async ({ caller, query, body: { type, trace_tier: tier, ...fields }, services }) => {
    if (type !== (fields.reference_dataset_id ? 'EXPERIMENT' : 'PROJECT'))
      throw runlakeError('BAD_REQUEST', { reason: typeReasons[type] });
    const body = { ...fields, trace_tier: fromV2Tier(tier) ?? null };
    return formatV2Session({ project: await storeSession(services, caller, body, query.upsert) });
  },
});

async function changeSession(
  services: Services,
  caller: WorkspaceCaller,
  id: string,
  change: ProjectChange,
): Promise<ProjectRecord> {
  checkLonglivedDays(services.config, change.longlivedTtlDays);
  return updateProject(services, caller.workspaceId, id, change);
}

const update = {
  method: 'PATCH',
  summary: 'Update a tracing project',
  access: { permission: 'projects:update', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', 'CONFLICT', 'RETENTION_OUT_OF_RANGE'],
} as const;
const afterRename = 'After a rename, patches of runs with the old name are still stored in the project.';

const updateSession = defineOperation({
  ...update,
  operationId: 'updateSession',
  path: '/sessions/:session_id',
  description: `Absent and null fields stay unchanged, except that a null \`longlived_ttl_days\` removes the value. ${afterRename}`,
  exactFields: ['extra'],
  schema: { params: SessionParams, body: SessionChange, response: { 200: Session } },
  handler: async ({ caller, params, body, services }) => {
    const change = {
      name: body.name ?? undefined,
      description: body.description ?? undefined,
      extra: body.extra ?? undefined,
      endTime: body.end_time ?? undefined,
      defaultDatasetId: body.default_dataset_id ?? undefined,
      traceTier: body.trace_tier ?? undefined,
      longlivedTtlDays: body.longlived_ttl_days,
    };
    return formatSession(await changeSession(services, caller, params.session_id, change));
  },
});

const updateV2Session = defineOperation({
  ...update,
  operationId: 'updateV2Session',
  path: '/v2/sessions/:session_id',
  description: `Absent fields stay unchanged; null clears a field. The keys of \`extra\` are merged with those that exist; null removes a key. ${afterRename}`,
  errorStyle: 'problem',
  exactFields: ['extra'],
  schema: { params: SessionParams, body: V2SessionChange, response: { 200: V2Session } },
  handler: async ({ caller, params, body, services }) => {
    const change = {
      name: body.name,
      description: body.description,
      extra: body.extra,
      mergesExtra: true,
      endTime: body.end_time,
      defaultDatasetId: body.default_dataset_id,
      traceTier: fromV2Tier(body.trace_tier),
      longlivedTtlDays: body.longlived_ttl_days,
    };
    return formatV2Session({ project: await changeSession(services, caller, params.session_id, change) });
  },
});

export const sessionChangeOperations = [createSession, createV2Session, updateSession, updateV2Session];
