import { type Static, Type } from 'typebox';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import {
  updateEvaluator as changeEvaluator,
  type EvaluatorRecord,
  type EvaluatorType,
  evaluatorOrders,
  evaluatorTypes,
  createEvaluator as insertEvaluator,
  readEvaluator,
  listEvaluators as readList,
  deleteEvaluators as removeEvaluators,
} from '../../pipelines/evaluators/evaluator.ts';
import { findTaggedIds } from '../../pipelines/tags/taggings.ts';
import { JsonObject, nullable, OneOf, optional, Text, Timestamp, Uuid } from '../server/formats.ts';
import { metadataParameter, pageParameters, parseMetadata, tagValueParameter } from '../server/list-parameters.ts';
import { defineOperation } from '../server/operation.ts';

/** Evaluators. Runlake stores their definitions for clients but does not execute them. */

const EvaluatorParams = Type.Object({ evaluator_id: Uuid() });
const codeInputs = ['thread', 'all_messages', 'human_ai_pairs', 'first_human_last_ai', 'trajectory'] as const;
const Name = Text({ minLength: 1, maxLength: 256 });

const code = {
  code: Type.Optional(Type.String({ maxLength: 500_000 })),
  language: optional(Text({ maxLength: 64 })),
  dependencies: optional(Text({ maxLength: 100_000 })),
  code_evaluator_input: optional(OneOf(codeInputs), { description: 'Data of a thread; null for evaluators of runs.' }),
  require_attachments: optional(Type.Boolean()),
  advanced_features_enabled: optional(Type.Boolean()),
  workspace_secrets_keys: optional(Type.Array(Text({ minLength: 1, maxLength: 256 }), { maxItems: 100 }), {
    description: 'Names of secrets of the workspace.',
  }),
  managed_code_evaluator_key: optional(Text({ maxLength: 256 })),
  managed_code_evaluator_settings: optional(JsonObject()),
};
const llm = {
  prompt_repo_handle: optional(Text({ maxLength: 256 })),
  commit_hash_or_tag: optional(Text({ maxLength: 256 })),
  playground_settings_id: optional(Text({ maxLength: 256 }), { description: 'Id of a model configuration.' }),
  num_few_shot_examples: optional(Type.Integer({ minimum: 0, maximum: 1_000 })),
  use_corrections_dataset: optional(Type.Boolean()),
  variable_mapping: optional(JsonObject()),
};
const Metadata = () => optional(JsonObject());
const definitionFields = { code_evaluator: optional(Type.Object(code)), llm_evaluator: optional(Type.Object(llm)) };
const Definitions = Type.Object(definitionFields);

const definitionFieldByType = { code: 'code_evaluator', llm: 'llm_evaluator' } as const;

const Evaluator = Type.Object({
  id: Uuid(),
  tenant_id: Uuid({ description: 'Id of the workspace.' }),
  name: Type.String(),
  type: OneOf(evaluatorTypes),
  code_evaluator: Type.Optional(JsonObject({ description: 'The fields that were sent, and `evaluator_id`.' })),
  llm_evaluator: Type.Optional(JsonObject({ description: 'The fields that were sent, and `evaluator_id`.' })),
  metadata: nullable(JsonObject()),
  feedback_keys: Type.Array(Type.String(), { description: 'Always empty.' }),
  run_rules: Type.Array(JsonObject(), { description: 'Always empty: there are no run rules.' }),
  created_by: Uuid({ description: 'Id of the user.' }),
  created_at: Timestamp(),
  updated_at: Timestamp(),
});
const EvaluatorResponse = Type.Object({ evaluator: Evaluator });

function formatEvaluator({ definition, metadata, ...evaluator }: EvaluatorRecord) {
  const definitionField = { [definitionFieldByType[evaluator.type]]: { ...definition, evaluator_id: evaluator.id } };
  return { ...evaluator, ...definitionField, metadata: metadata && { ...metadata }, feedback_keys: [], run_rules: [] };
}

/** Returns the definition for the given type. @throws BAD_REQUEST if the body has a definition for another type. */
function pickDefinition(body: Static<typeof Definitions>, type: EvaluatorType) {
  const otherType = evaluatorTypes.find((each) => each !== type && body[definitionFieldByType[each]] != null);
  if (otherType)
    throw runlakeError('BAD_REQUEST', {
      reason: `An evaluator of type ${type} has no ${definitionFieldByType[otherType]}.`,
    });
  return body[definitionFieldByType[type]];
}

const createEvaluator = defineOperation({
  errorStyle: 'error',
  operationId: 'createEvaluator',
  method: 'POST',
  path: '/v1/platform/evaluators',
  summary: 'Create a record of an evaluator',
  description: 'Runlake does not execute evaluators. The definition is in the member for the type.',
  access: { permission: 'evaluators:manage', tenantScope: 'workspace' },
  errors: ['BAD_REQUEST', 'LIMIT_REACHED'],
  exactFields: ['metadata'],
  schema: {
    body: Type.Object({ name: Name, type: OneOf(evaluatorTypes), metadata: Metadata(), ...definitionFields }),
    response: { 201: EvaluatorResponse },
  },
  handler: async ({ caller, body: { name, type, metadata = null, ...sent }, services }) => {
    const definition = pickDefinition(sent, type);
    if (definition == null) throw runlakeError('BAD_REQUEST', { reason: `${definitionFieldByType[type]} is missing.` });
    const storedDefinition = type === 'code' ? { language: 'python', ...definition } : definition;
    const fields = { name, type, definition: storedDefinition, metadata };
    const evaluator = await insertEvaluator(services.database, caller, fields);
    return { evaluator: formatEvaluator(evaluator) };
  },
});

const listEvaluators = defineOperation({
  errorStyle: 'error',
  operationId: 'listEvaluators',
  method: 'GET',
  path: '/v1/platform/evaluators',
  summary: 'List the evaluators of the workspace',
  access: { permission: 'evaluators:read', tenantScope: 'workspace' },
  unsupported: { query: ['feedback_key', 'resource_id', 'agent_id'] },
  errors: ['ANSWER_TOO_LARGE'],
  schema: {
    query: Type.Object({
      type: Type.Optional(OneOf(evaluatorTypes)),
      name_contains: Type.Optional(Text({ description: 'Case-insensitive.' })),
      metadata: metadataParameter,
      tag_value_id: tagValueParameter,
      sort_by: OneOf(evaluatorOrders, { default: 'created_at' }),
      sort_by_desc: Type.Boolean({ default: true }),
      ...pageParameters,
    }),
    response: { 200: Type.Object({ evaluators: Type.Array(Evaluator), total: Type.Integer() }) },
  },
  handler: async ({ caller, query, services }) => {
    const { rows, total } = await readList(services.database, caller.workspaceId, {
      ids: await findTaggedIds(services.database, caller.workspaceId, query.tag_value_id, undefined),
      type: query.type,
      nameContains: query.name_contains,
      metadata: parseMetadata(query.metadata),
      sortBy: query.sort_by,
      descending: query.sort_by_desc,
      limit: query.limit,
      offset: query.offset,
    });
    return { evaluators: rows.map(formatEvaluator), total };
  },
});

const getEvaluator = defineOperation({
  errorStyle: 'error',
  operationId: 'getEvaluator',
  method: 'GET',
  path: '/v1/platform/evaluators/:evaluator_id',
  summary: 'Get an evaluator',
  access: { permission: 'evaluators:read', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: { params: EvaluatorParams, response: { 200: Evaluator } },
  handler: async ({ caller, params, services }) =>
    formatEvaluator(await readEvaluator(services.database, caller.workspaceId, params.evaluator_id)),
});

const updateEvaluator = defineOperation({
  errorStyle: 'error',
  operationId: 'updateEvaluator',
  method: 'PATCH',
  path: '/v1/platform/evaluators/:evaluator_id',
  summary: 'Change an evaluator',
  description: 'Absent fields stay unchanged, also within the definition. `metadata` is replaced, and removed by null.',
  access: { permission: 'evaluators:manage', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', 'BAD_REQUEST'],
  exactFields: ['metadata'],
  schema: {
    params: EvaluatorParams,
    body: Type.Object({ name: optional(Name), metadata: Metadata(), ...definitionFields }),
    response: { 200: EvaluatorResponse },
  },
  handler: async ({ caller, params, body, services }) => {
    const type = evaluatorTypes.find((each) => body[definitionFieldByType[each]] != null);
    const fields = type && pickDefinition(body, type);
    const { name, metadata } = body;
    const change = { name: name ?? undefined, definition: type && { type, fields: fields ?? {} }, metadata };
    const evaluator = await changeEvaluator(services.database, caller.workspaceId, params.evaluator_id, change);
    return { evaluator: formatEvaluator(evaluator) };
  },
});

const deleteRunRules = { delete_run_rules: Type.Optional(Type.Boolean({ description: 'Accepted; there are none.' })) };

const deleteEvaluator = defineOperation({
  errorStyle: 'error',
  operationId: 'deleteEvaluator',
  method: 'DELETE',
  path: '/v1/platform/evaluators/:evaluator_id',
  summary: 'Delete an evaluator',
  access: { permission: 'evaluators:manage', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: { params: EvaluatorParams, query: Type.Object(deleteRunRules), response: { 204: Type.Null() } },
  handler: async ({ caller, params, services }) => {
    const [deleted] = await removeEvaluators(services.database, caller.workspaceId, [params.evaluator_id]);
    if (deleted === undefined) throw runlakeError('NOT_FOUND', { what: 'Evaluator' });
    return null;
  },
});

const deleteEvaluators = defineOperation({
  errorStyle: 'error',
  operationId: 'deleteEvaluators',
  method: 'DELETE',
  path: '/v1/platform/evaluators',
  summary: 'Delete several evaluators',
  access: { permission: 'evaluators:manage', tenantScope: 'workspace' },
  schema: {
    query: Type.Object({ evaluator_ids: Type.Array(Uuid(), { maxItems: 1_000 }), ...deleteRunRules }),
    response: {
      200: Type.Object({
        succeeded: Type.Array(Uuid()),
        failed: Type.Array(Type.Object({ id: Uuid(), error: Type.String() })),
      }),
    },
  },
  handler: async ({ caller, query, services }) => {
    const ids = query.evaluator_ids.map((id) => id.toLowerCase());
    const succeeded = await removeEvaluators(services.database, caller.workspaceId, ids);
    const failed = ids.filter((id) => !succeeded.includes(id));
    return { succeeded, failed: failed.map((id) => ({ id, error: 'Evaluator not found.' })) };
  },
});

export const evaluatorOperations = [
  listEvaluators,
  createEvaluator,
  getEvaluator,
  updateEvaluator,
  deleteEvaluator,
  deleteEvaluators,
];
