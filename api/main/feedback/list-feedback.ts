import { type Static, Type } from 'typebox';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { listFeedback as readPage } from '../../../pipelines/feedback/list-feedback.ts';
import { parseTime } from '../../../pipelines/ingest/run-event/times.ts';
import { Text, Timestamp, Uuid } from '../../server/formats.ts';
import { Answer, defineOperation } from '../../server/operation.ts';
import { Feedback, feedbackMediaType, includeUserNames, SourceType } from './feedback-schema.ts';

const ids = (description: string) => Type.Optional(Type.Array(Uuid(), { maxItems: 1_000, description }));

const Query = Type.Object({
  run: ids('Only feedback on these runs.'),
  session: ids('Only feedback on these projects and on runs in them.'),
  user: ids('Only feedback that these users sent.'),
  key: Type.Optional(Type.Array(Text(), { maxItems: 1_000 })),
  source: Type.Optional(Type.Array(SourceType, { maxItems: 100 })),
  has_comment: Type.Optional(Type.Boolean()),
  has_score: Type.Optional(Type.Boolean()),
  level: Type.Optional(
    Type.Union([Type.Literal('run'), Type.Literal('session')], {
      description: 'Only feedback on runs, or only feedback on projects.',
    }),
  ),
  min_created_at: Type.Optional(Timestamp()),
  max_created_at: Type.Optional(Timestamp()),
  include_user_names: includeUserNames,
  limit: Type.Integer({ minimum: 1, maximum: 100, default: 100 }),
  offset: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, default: 0 }),
});

export const listFeedback = defineOperation({
  operationId: 'listFeedback',
  method: 'GET',
  path: '/feedback',
  tag: 'feedback',
  summary: 'List the feedback of the workspace, newest first',
  access: { permission: 'feedback:read', tenantScope: 'workspace' },
  unsupported: { query: ['comparative_experiment_id'] },
  schema: { query: Query, response: { 200: Type.Array(Feedback) }, produces: feedbackMediaType },
  handler: async ({ caller, query, services }) => {
    const page = await readPage(services, {
      tenantId: caller.workspaceId,
      filter: {
        runIds: query.run,
        projectIds: query.session,
        userIds: query.user,
        keys: query.key,
        sourceTypes: query.source,
        hasComment: query.has_comment,
        hasScore: query.has_score,
        level: query.level,
        createdFromMicros: parseTimeParameter(query, 'min_created_at'),
        createdUntilMicros: parseTimeParameter(query, 'max_created_at'),
      },
      limitRows: query.limit,
      offsetRows: query.offset,
      withUserNames: query.include_user_names,
    });
    return new Answer({ body: page });
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
