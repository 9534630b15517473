import { type Static, Type } from 'typebox';
import {
  updateConfig as changeConfig,
  configTypes,
  type FeedbackConfigRecord,
  createConfig as insertConfig,
  listConfigs as readList,
  deleteConfig as removeConfig,
} from '../../pipelines/feedback/feedback-config.ts';
import { nullable, OneOf, optional, Text, Timestamp, Uuid } from '../server/formats.ts';
import { buildPageResponse, pageParameters } from '../server/list-parameters.ts';
import { defineOperation, RawResponse } from '../server/operation.ts';

const Key = () => Text({ minLength: 1, maxLength: 180 });

export const NewConfig = Type.Object({
  type: OneOf(configTypes),
  min: optional(Type.Number()),
  max: optional(Type.Number()),
  categories: optional(
    Type.Array(Type.Object({ value: Type.Number(), label: optional(Text({ minLength: 1, maxLength: 1_000 })) }), {
      maxItems: 1_000,
    }),
  ),
});

/** Returns the config with all fields set, so that equivalent configs are equal. */
export const toConfig = ({ type, min, max, categories }: Static<typeof NewConfig>) => ({
  type,
  min: min ?? null,
  max: max ?? null,
  categories: categories?.map(({ value, label }) => ({ value, label: label ?? null })) ?? null,
});

const Config = Type.Object({
  feedback_key: Type.String(),
  feedback_config: Type.Object({
    type: OneOf(configTypes),
    min: nullable(Type.Number()),
    max: nullable(Type.Number()),
    categories: nullable(Type.Array(Type.Object({ value: Type.Number(), label: nullable(Type.String()) }))),
  }),
  tenant_id: Uuid({ description: 'Id of the workspace.' }),
  is_lower_score_better: Type.Boolean(),
  is_enforced: Type.Boolean(),
  modified_at: Timestamp(),
});

const IsEnforced = optional(Type.Boolean(), {
  description:
    'Refuse feedback that `POST` and `PATCH /feedback` send and that does not match. Ingest of runs does not check it.',
});

const toResponse = ({ feedback_config: { categories, ...config }, ...record }: FeedbackConfigRecord) => ({
  ...record,
  feedback_config: { ...config, categories: categories && [...categories] },
});

export const createConfig = defineOperation({
  operationId: 'createFeedbackConfig',
  method: 'POST',
  path: '/feedback-configs',
  tag: 'feedback',
  summary: 'Define what the scores of a feedback key mean',
  description: 'An identical config is returned unchanged; 409 if another one exists.',
  access: { permission: 'feedback:configure', tenantScope: 'workspace' },
  errors: ['CONFLICT', 'BAD_REQUEST', 'LIMIT_REACHED'],
  schema: {
    body: Type.Object({
      feedback_key: Key(),
      feedback_config: NewConfig,
      is_lower_score_better: optional(Type.Boolean(), { default: false }),
      is_enforced: IsEnforced,
    }),
    response: { 200: Config },
  },
  handler: async ({ caller, body, services }) => {
    const fields = {
      config: toConfig(body.feedback_config),
      isLowerScoreBetter: body.is_lower_score_better ?? false,
      isEnforced: body.is_enforced ?? false,
    };
    return toResponse(await insertConfig(services.database, caller.workspaceId, body.feedback_key, fields));
  },
});

export const listConfigs = defineOperation({
  operationId: 'listFeedbackConfigs',
  method: 'GET',
  path: '/feedback-configs',
  tag: 'feedback',
  summary: 'List the feedback configs of the workspace',
  access: { permission: 'feedback:read', tenantScope: 'workspace' },
  errors: ['ANSWER_TOO_LARGE'],
  schema: {
    query: Type.Object({
      key: Type.Optional(Type.Array(Text(), { maxItems: 1_000 })),
      name_contains: Type.Optional(Text({ description: 'Part of the key, ignoring case.' })),
      sort_by_desc: Type.Boolean({ default: true, description: 'By the last change.' }),
      read_after_write: Type.Optional(Type.Boolean({ description: 'Accepted; all reads see earlier writes.' })),
      ...pageParameters,
    }),
    response: { 200: Type.Array(Config) },
  },
  handler: async ({ caller, query, services }) => {
    const { rows, total } = await readList(services.database, caller.workspaceId, {
      keys: query.key,
      keyContains: query.name_contains,
      descending: query.sort_by_desc,
      limit: query.limit,
      offset: query.offset,
    });
    return buildPageResponse({ rows: rows.map(toResponse), total });
  },
});

export const updateConfig = defineOperation({
  operationId: 'updateFeedbackConfig',
  method: 'PATCH',
  path: '/feedback-configs',
  tag: 'feedback',
  summary: 'Change a feedback config',
  description: 'Absent and null fields stay unchanged.',
  access: { permission: 'feedback:configure', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', 'BAD_REQUEST'],
  schema: {
    body: Type.Object({
      feedback_key: Key(),
      feedback_config: optional(NewConfig),
      is_lower_score_better: optional(Type.Boolean()),
      is_enforced: IsEnforced,
    }),
    response: { 200: Config },
  },
  handler: async ({ caller, body, services }) => {
    const { feedback_config: config, is_lower_score_better: isLowerScoreBetter, is_enforced: isEnforced } = body;
    const change = {
      ...(config == null ? {} : { config: toConfig(config) }),
      ...(isLowerScoreBetter == null ? {} : { isLowerScoreBetter }),
      ...(isEnforced == null ? {} : { isEnforced }),
    };
    return toResponse(await changeConfig(services.database, caller.workspaceId, body.feedback_key, change));
  },
});

export const deleteConfig = defineOperation({
  operationId: 'deleteFeedbackConfig',
  method: 'DELETE',
  path: '/feedback-configs',
  tag: 'feedback',
  summary: 'Delete a feedback config',
  description: 'The feedback stays.',
  access: { permission: 'feedback:configure', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: { query: Type.Object({ feedback_key: Key() }), response: { 204: Type.Null() } },
  handler: async ({ caller, query, services }) => {
    await removeConfig(services.database, caller.workspaceId, query.feedback_key);
    return new RawResponse({ status: 204 });
  },
});
