import { type Static, Type } from 'typebox';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import {
  updateConfig as changeConfig,
  configTypes,
  type FeedbackConfig,
  type FeedbackConfigRecord,
  createConfig as insertConfig,
  maxCategories,
  listConfigs as readList,
  deleteConfig as removeConfig,
} from '../../pipelines/feedback/feedback-config.ts';
import { nullable, OneOf, optional, Text, Timestamp, Uuid } from '../server/formats.ts';
import { buildPageResponse, pageParameters } from '../server/list-parameters.ts';
import { defineOperation } from '../server/operation.ts';

const Key = () => Text({ minLength: 1, maxLength: 180 });

const NewCategories = Type.Array(
  Type.Object({ value: Type.Number(), label: optional(Text({ minLength: 1, maxLength: 1_000 })) }),
  { maxItems: maxCategories },
);

export const NewConfig = Type.Object({
  type: OneOf(configTypes),
  min: optional(Type.Number()),
  max: optional(Type.Number()),
  categories: optional(NewCategories),
  allows_multiple_categories: optional(
    Type.Boolean({ description: 'Whether a reviewer can pick several categories. Default: false.' }),
  ),
});

const toCategories = (categories: Static<typeof NewCategories>) =>
  categories.map(({ value, label }) => ({ value, label: label ?? null }));

/** Returns the config with all fields set, so that equivalent configs are equal. */
export const toConfig = ({ type, min, max, categories, ...more }: Static<typeof NewConfig>): FeedbackConfig => ({
  type,
  min: min ?? null,
  max: max ?? null,
  categories: categories ? toCategories(categories) : null,
  ...(more.allows_multiple_categories && { allows_multiple_categories: true as const }),
});

export const FeedbackConfigShape = Type.Object({
  id: Uuid(),
  feedback_key: Type.String(),
  feedback_config: Type.Object({
    type: OneOf(configTypes),
    min: nullable(Type.Number()),
    max: nullable(Type.Number()),
    categories: nullable(Type.Array(Type.Object({ value: Type.Number(), label: nullable(Type.String()) }))),
    allows_multiple_categories: Type.Optional(Type.Boolean({ description: 'Absent means false.' })),
  }),
  tenant_id: Uuid({ description: 'Id of the workspace.' }),
  is_lower_score_better: Type.Boolean(),
  is_enforced: Type.Boolean(),
  is_first: Type.Boolean({ description: 'Always true: a key has one config.' }),
  is_deleted: Type.Boolean({ description: 'Always false: deleted configs are not kept.' }),
  modified_at: Timestamp(),
});

const IsEnforced = optional(Type.Boolean(), {
  description: 'Refuse feedback that does not match, however it is sent.',
});

export const formatFeedbackConfig = ({
  feedback_config: { categories, ...config },
  ...record
}: FeedbackConfigRecord) => ({
  ...record,
  is_first: true,
  is_deleted: false,
  feedback_config: { ...config, categories: categories && [...categories] },
});

const createConfig = defineOperation({
  operationId: 'createFeedbackConfig',
  method: 'POST',
  path: '/feedback-configs',
  summary: 'Define what the scores of a feedback key mean',
  description:
    'An identical config is returned unchanged; 409 if another one exists. Absent and null flags are not compared, and ' +
    'false in a new config.',
  access: { permission: 'feedback:configure', tenantScope: 'workspace' },
  errors: ['CONFLICT', 'BAD_REQUEST', 'LIMIT_REACHED'],
  schema: {
    body: Type.Object({
      feedback_key: Key(),
      feedback_config: NewConfig,
      is_lower_score_better: optional(Type.Boolean()),
      is_enforced: IsEnforced,
    }),
    response: { 200: FeedbackConfigShape },
  },
  handler: async ({ caller, body, services }) => {
    const fields = {
      config: toConfig(body.feedback_config),
      isLowerScoreBetter: body.is_lower_score_better ?? undefined,
      isEnforced: body.is_enforced ?? undefined,
    };
    return formatFeedbackConfig(await insertConfig(services.database, caller.workspaceId, body.feedback_key, fields));
  },
});

const listConfigs = defineOperation({
  operationId: 'listFeedbackConfigs',
  method: 'GET',
  path: '/feedback-configs',
  summary: 'List the feedback configs of the workspace',
  access: { permission: 'feedback:read', tenantScope: 'workspace' },
  errors: ['ANSWER_TOO_LARGE'],
  schema: {
    query: Type.Object({
      key: Type.Optional(Type.Array(Text(), { maxItems: 1_000 })),
      name_contains: Type.Optional(Text({ description: 'Part of the key, ignoring case.' })),
      is_enforced: Type.Optional(Type.Boolean({ description: 'Only configs that are enforced, or only others.' })),
      include_all_configs: Type.Optional(
        Type.Boolean({ description: 'Accepted; a key has one config, and deleted ones are not kept.' }),
      ),
      sort_by_desc: Type.Boolean({ default: true, description: 'By the last change.' }),
      read_after_write: Type.Optional(Type.Boolean({ description: 'Accepted; all reads see earlier writes.' })),
      ...pageParameters,
    }),
    response: { 200: Type.Array(FeedbackConfigShape) },
  },
  handler: async ({ caller, query, services }) => {
    const { rows, total } = await readList(services.database, caller.workspaceId, {
      keys: query.key,
      keyContains: query.name_contains,
      isEnforced: query.is_enforced,
      descending: query.sort_by_desc,
      limit: query.limit,
      offset: query.offset,
    });
    return buildPageResponse({ rows: rows.map(formatFeedbackConfig), total });
  },
});

const updateConfig = defineOperation({
  operationId: 'updateFeedbackConfig',
  method: 'PATCH',
  path: '/feedback-configs',
  summary: 'Change a feedback config',
  description:
    'Absent and null fields stay unchanged. `add_categories` and `remove_categories` keep the other categories; 400 if a ' +
    'value or label to add exists, if a value to remove does not, or if fewer than two categories would remain.',
  access: { permission: 'feedback:configure', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', 'BAD_REQUEST'],
  schema: {
    body: Type.Object({
      feedback_key: Key(),
      id: optional(Uuid({ description: '404 if the config of the key has another id.' })),
      feedback_config: optional(NewConfig),
      add_categories: optional(NewCategories),
      remove_categories: optional(
        Type.Array(Type.Number(), { maxItems: maxCategories, description: 'Values of the categories.' }),
      ),
      is_lower_score_better: optional(Type.Boolean()),
      is_enforced: IsEnforced,
    }),
    response: { 200: FeedbackConfigShape },
  },
  handler: async ({ caller, body, services }) => {
    const { feedback_config: config, add_categories: add, remove_categories: remove } = body;
    const changesCategories = (add ?? []).length + (remove ?? []).length > 0;
    if (config && changesCategories) {
      throw runlakeError('BAD_REQUEST', { reason: 'Send either feedback_config or changes of its categories.' });
    }
    const change = {
      ...(config && { config: toConfig(config) }),
      ...(changesCategories && { categories: { add: add ? toCategories(add) : [], remove: remove ?? [] } }),
      ...(body.is_lower_score_better != null && { isLowerScoreBetter: body.is_lower_score_better }),
      ...(body.is_enforced != null && { isEnforced: body.is_enforced }),
    };
    const name = { key: body.feedback_key, id: body.id ?? undefined };
    return formatFeedbackConfig(await changeConfig(services.database, caller.workspaceId, name, change));
  },
});

const deleteConfig = defineOperation({
  operationId: 'deleteFeedbackConfig',
  method: 'DELETE',
  path: '/feedback-configs',
  summary: 'Delete a feedback config',
  description: 'The feedback stays. Give either the key or the id.',
  access: { permission: 'feedback:configure', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', 'BAD_REQUEST'],
  schema: {
    query: Type.Object({ feedback_key: Type.Optional(Key()), id: Type.Optional(Uuid()) }),
    response: { 204: Type.Null() },
  },
  handler: async ({ caller, query: { feedback_key: key, id }, services }) => {
    if ((key === undefined) === (id === undefined)) {
      throw runlakeError('BAD_REQUEST', { reason: 'Send either feedback_key or id.' });
    }
    const deletedKey = await removeConfig(services.database, caller.workspaceId, { key, id });
    services.sentConfigs.forget(caller.workspaceId, deletedKey);
    return null;
  },
});

export const feedbackConfigOperations = [listConfigs, createConfig, updateConfig, deleteConfig];
