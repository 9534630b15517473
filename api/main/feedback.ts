import { type Static, Type } from 'typebox';
import type { ErrorCode } from '../../infra/errors/catalogue.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { sourceTypes } from '../../pipelines/feedback/feedback-values.ts';
import {
  type SubmittedFeedback,
  leaveFeedback as storeSubmittedFeedback,
} from '../../pipelines/feedback/leave-feedback.ts';
import { getFeedback as readFeedback, listFeedback as readPage } from '../../pipelines/feedback/list-feedback.ts';
import {
  updateFeedback as changeFeedback,
  type FeedbackDeps,
  deleteFeedback as removeFeedback,
  createFeedback as takeFeedback,
} from '../../pipelines/feedback/write-feedback.ts';
import { parseTime } from '../../pipelines/ingest/run-event/times.ts';
import { JsonObject, jsonMediaType, OneOf, optional, Text, Timestamp, Uuid } from '../server/formats.ts';
import { pageParameters } from '../server/list-parameters.ts';
import { defineOperation, RawResponse } from '../server/operation.ts';
import { clickhouseErrors } from '../server/operation-errors.ts';
import { requireJson, withBody } from '../server/request-body.ts';
import type { Services } from '../server/services.ts';

/** Returns the dependencies of the feedback operations. */
function toFeedbackDeps(services: Services): FeedbackDeps {
  const { accept, clickhouse, database, config, recentFeedback: recent, sentConfigs } = services;
  return { log: accept.log, clickhouse, database, config, recent, sentConfigs };
}

/** Errors of the operations that accept feedback. */
const feedbackBodyErrors = [
  'INVALID_FEEDBACK',
  'LIMIT_REACHED',
  'INVALID_JSON',
  'INVALID_UTF8',
  'TOO_DEEP',
  'RUN_TOO_LARGE',
  'BODY_TOO_LARGE',
  'UNSUPPORTED_MEDIA_TYPE',
  'OVERLOADED',
  'EVENT_LOG_UNAVAILABLE',
] as const satisfies readonly ErrorCode[];

const FeedbackParams = Type.Object({ feedback_id: Uuid() });

const SourceType = OneOf(sourceTypes);

const includeUserNames = Type.Boolean({
  default: false,
  description: 'Adds the name of the sender as `feedback_source.user_name`.',
});

/** Feedback in a response. */
export const Feedback = Type.Object({
  id: Uuid(),
  key: Type.String(),
  score: optional(Type.Union([Type.Number(), Type.Boolean()])),
  value: optional(Type.Union([Type.Number(), Type.Boolean(), Type.String(), JsonObject()])),
  comment: optional(Type.String()),
  correction: optional(Type.Union([JsonObject(), Type.String()])),
  run_id: optional(Uuid({ description: 'Null for feedback on a project.' })),
  trace_id: optional(Uuid()),
  session_id: optional(Uuid({ description: 'Id of the project. Default: the project of the run.' })),
  start_time: optional(Timestamp({ description: 'Start time of the run.' })),
  is_root: Type.Optional(Type.Boolean()),
  feedback_source: optional(
    Type.Object({
      type: SourceType,
      metadata: optional(JsonObject()),
      user_id: optional(Uuid()),
      ls_user_id: optional(Uuid()),
      user_name: optional(Type.String()),
    }),
  ),
  feedback_group_id: optional(Uuid()),
  comparative_experiment_id: optional(Uuid()),
  extra: optional(JsonObject()),
  error: optional(Type.Boolean({ description: 'True if the evaluator itself failed.' })),
  feedback_thread_id: Type.Optional(Type.Null()),
  created_at: Timestamp(),
  modified_at: Timestamp(),
});

const createFeedback = defineOperation({
  operationId: 'createFeedback',
  method: 'POST',
  path: '/feedback',
  aliases: ['/feedback/eager'],
  summary: 'Send feedback on a run or a project',
  description:
    'The run may arrive later. Feedback with the same id is replaced. ' +
    'A `feedback_config` is kept as the config of the key, unless the key has one.',
  access: { permission: 'feedback:write', tenantScope: 'workspace' },
  errors: [...feedbackBodyErrors, 'PROJECT_UNKNOWN', 'NOT_FOUND'],
  rawBody: {
    contentTypes: ['application/json'],
    description:
      '`key` (at most 180 characters), one of `run_id`, `session_id` and `address` (of an agent), and any of `id`, `trace_id`, `score` (number or boolean), ' +
      '`value`, `comment`, `correction`, `feedback_source`, `extra`, `error`, `start_time`, `feedback_group_id`, ' +
      '`comparative_experiment_id`, `created_at`, `modified_at`, `feedback_config`.',
  },
  schema: { response: { 200: Feedback }, produces: jsonMediaType },
  handler: async ({ caller, request, services }) => {
    requireJson(request);
    const acceptFeedback = (body: Buffer) => takeFeedback(caller, body, toFeedbackDeps(services));
    return new RawResponse({ body: await withBody({ request, caller }, services.config, acceptFeedback) });
  },
});

const deleteFeedback = defineOperation({
  operationId: 'deleteFeedback',
  method: 'DELETE',
  path: '/feedback/:feedback_id',
  summary: 'Delete feedback',
  access: { permission: 'feedback:write', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', 'NOT_STORED_YET', 'KAFKA_UNAVAILABLE', 'OVERLOADED', 'EVENT_LOG_UNAVAILABLE'],
  schema: { params: FeedbackParams, response: { 200: Type.Object({ message: Type.String() }) } },
  handler: async ({ caller, params, services }) => {
    await removeFeedback(toFeedbackDeps(services), caller.workspaceId, params.feedback_id.toLowerCase());
    return { message: 'Feedback deleted' };
  },
});

const getFeedback = defineOperation({
  operationId: 'getFeedback',
  method: 'GET',
  path: '/feedback/:feedback_id',
  summary: 'Get feedback by id',
  access: { permission: 'feedback:read', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: {
    params: FeedbackParams,
    query: Type.Object({ include_user_names: includeUserNames }),
    response: { 200: Feedback },
    produces: jsonMediaType,
  },
  handler: async ({ caller, params, query, services }) => {
    const id = params.feedback_id.toLowerCase();
    const request = { tenantId: caller.workspaceId, id, withUserNames: query.include_user_names };
    return new RawResponse({ body: await readFeedback(services, request) });
  },
});

const numberPattern = /^[+-]?\d{1,300}(?:\.\d{1,300})?(?:e[+-]?\d{1,2})?$/i;

const shared = {
  path: '/feedback/tokens/:token',
  description:
    'Needs no key: the token is part of the links that `POST /feedback/tokens` returns, and of those in the final event of agent ' +
    'server runs with `feedback_keys`. It is valid for that run and feedback key until it expires. Sending again replaces the previous ' +
    'feedback.',
  access: { public: true, tenantScope: 'none' },
  openToPages: true,
  errors: [...feedbackBodyErrors, 'NOT_FOUND', 'LINK_EXPIRED'],
} as const;

const params = Type.Object({ token: Type.String({ maxLength: 8_192 }) });
const response = { 200: Type.Object({ run_id: Uuid(), key: Type.String() }) };

const FeedbackBody = Type.Object({
  score: optional(Type.Union([Type.Number(), Type.Boolean()])),
  value: optional(Type.Union([Type.Number(), Type.Boolean(), Type.String(), JsonObject()])),
  comment: optional(Text()),
  correction: optional(Type.Union([JsonObject(), Type.String()])),
  metadata: optional(JsonObject()),
});

/** `POST /feedback/tokens/{token}` */
const leaveFeedback = defineOperation({
  ...shared,
  operationId: 'leaveFeedback',
  method: 'POST',
  summary: 'Send feedback with the token of a link',
  schema: { params, body: FeedbackBody, response },
  handler: async ({ params: { token }, body, services }) => submitFeedback(services, token, body),
});

/** Like {@link leaveFeedback}, but for a link that a user opens. The feedback is in the query. */
const leaveFeedbackByLink = defineOperation({
  ...shared,
  operationId: 'leaveFeedbackByLink',
  method: 'GET',
  summary: 'Send feedback by opening a link',
  schema: {
    params,
    query: Type.Object({
      score: Type.Optional(
        Type.String({ pattern: `${numberPattern.source}|^(?:true|false)$`, description: 'A number or a boolean.' }),
      ),
      value: Type.Optional(Text({ description: 'Numbers and booleans are converted.' })),
      comment: Type.Optional(Text()),
      correction: Type.Optional(Text()),
    }),
    response,
  },
  handler: async ({ params: { token }, query: { score, value, ...said }, services }) =>
    submitFeedback(services, token, {
      ...said,
      score: parseValue(score) as number | boolean | undefined,
      value: parseValue(value),
    }),
});

async function submitFeedback(services: Services, token: string, content: SubmittedFeedback) {
  const { runId, key } = await storeSubmittedFeedback(toFeedbackDeps(services), token, content);
  return { run_id: runId, key };
}

/** Converts a query text to a number or a boolean if it represents one. */
function parseValue(text: string | undefined): string | number | boolean | undefined {
  if (text === 'true' || text === 'false') return text === 'true';
  return text !== undefined && numberPattern.test(text) ? Number(text) : text;
}

// The Python SDK sends the names of enum members.
const sourceNames = sourceTypes.flatMap((type) => [type, `FeedbackSourceType.${type.toUpperCase()}`]);

/** Parameter with the source types of the feedback to list. */
export const sourceParameter = Type.Optional(
  Type.Array(OneOf(sourceNames), { maxItems: 100, description: 'Types of the sources of the feedback.' }),
);

/** Returns the source types in {@link sourceParameter}. */
export const parseSourceTypes = (names: readonly string[] | undefined): string[] | undefined =>
  names?.map((name) => name.replace('FeedbackSourceType.', '').toLowerCase());

const ids = (description: string) => Type.Optional(Type.Array(Uuid(), { maxItems: 1_000, description }));

const Query = Type.Object({
  run: ids('Only feedback on these runs.'),
  session: ids('Only feedback on these projects and on runs in them.'),
  user: ids('Only feedback that these users sent.'),
  key: Type.Optional(Type.Array(Text(), { maxItems: 1_000 })),
  source: sourceParameter,
  has_comment: Type.Optional(Type.Boolean()),
  has_score: Type.Optional(Type.Boolean()),
  comparative_experiment_id: Type.Optional(Uuid()),
  level: Type.Optional(
    OneOf(['run', 'session'], {
      description: 'Only feedback on runs, or only feedback on projects.',
    }),
  ),
  min_created_at: Type.Optional(Timestamp()),
  max_created_at: Type.Optional(Timestamp()),
  include_user_names: includeUserNames,
  ...pageParameters,
});

const listFeedback = defineOperation({
  operationId: 'listFeedback',
  method: 'GET',
  path: '/feedback',
  summary: 'List the feedback of the workspace, newest first',
  access: { permission: 'feedback:read', tenantScope: 'workspace' },
  errors: ['ANSWER_TOO_LARGE', ...clickhouseErrors],
  schema: { query: Query, response: { 200: Type.Array(Feedback) }, produces: jsonMediaType },
  handler: async ({ caller, query, services }) => {
    const page = await readPage(services, {
      tenantId: caller.workspaceId,
      filter: {
        runIds: query.run,
        projectIds: query.session,
        userIds: query.user,
        keys: query.key,
        sourceTypes: parseSourceTypes(query.source),
        hasComment: query.has_comment,
        hasScore: query.has_score,
        comparisonId: query.comparative_experiment_id,
        level: query.level,
        createdFromMicros: parseTimeParameter(query, 'min_created_at'),
        createdUntilMicros: parseTimeParameter(query, 'max_created_at'),
      },
      limitRows: query.limit,
      offsetRows: query.offset,
      withUserNames: query.include_user_names,
    });
    return new RawResponse({ body: page });
  },
});

function parseTimeParameter(
  query: Static<typeof Query>,
  name: 'min_created_at' | 'max_created_at',
): number | undefined {
  const text = query[name];
  if (text === undefined) return undefined;
  const micros = parseTime(text);
  if (micros !== undefined) return micros;
  const field = { loc: ['query', name], msg: 'must be an ISO 8601 date and time', type: 'date_time_format' };
  throw runlakeError('INVALID_REQUEST', {}, { fields: [field] });
}

const updateFeedback = defineOperation({
  operationId: 'updateFeedback',
  method: 'PATCH',
  path: '/feedback/:feedback_id',
  summary: 'Update feedback',
  description:
    'Absent fields stay unchanged; null removes the value. A `feedback_config` is kept as in `POST /feedback`. 503 while accepted feedback is not stored.',
  access: { permission: 'feedback:write', tenantScope: 'workspace' },
  errors: [...feedbackBodyErrors, 'NOT_FOUND', 'NOT_STORED_YET', 'KAFKA_UNAVAILABLE'],
  rawBody: {
    contentTypes: ['application/json'],
    description: 'Any of `score`, `value`, `comment`, `correction`, `feedback_config`.',
  },
  schema: { params: FeedbackParams, response: { 200: Feedback }, produces: jsonMediaType },
  handler: async ({ caller, params, request, services }) => {
    requireJson(request);
    const feedback = { tenantId: caller.workspaceId, id: params.feedback_id.toLowerCase() };
    const change = (body: Buffer) => changeFeedback(toFeedbackDeps(services), feedback, body);
    return new RawResponse({ body: await withBody({ request, caller }, services.config, change) });
  },
});

export const feedbackOperations = [
  createFeedback,
  listFeedback,
  getFeedback,
  updateFeedback,
  deleteFeedback,
  leaveFeedback,
  leaveFeedbackByLink,
];
