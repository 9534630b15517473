import { Type } from 'typebox';
import { type LeftFeedback, leaveFeedback as takeFeedback } from '../../../pipelines/feedback/feedback-token.ts';
import { JsonObject, optional, Text, Uuid } from '../../server/formats.ts';
import { defineOperation } from '../../server/operation.ts';
import type { Services } from '../../server/services.ts';
import { feedbackBodyErrors, feedbackDeps } from './feedback-deps.ts';

const number = /^[+-]?\d{1,300}(?:\.\d{1,300})?(?:e[+-]?\d{1,2})?$/i;

const shared = {
  path: '/feedback/tokens/:token',
  tag: 'feedback',
  description:
    'Needs no key: the token is part of the links in the final event of agent server runs with `feedback_keys`. It is valid for ' +
    'that run and feedback key until it expires. Sending again replaces the previous feedback.',
  access: { public: true, tenantScope: 'none' },
  openToPages: true,
  errors: [...feedbackBodyErrors, 'NOT_FOUND', 'LINK_EXPIRED'],
} as const;

const params = Type.Object({ token: Type.String({ maxLength: 8_192 }) });
const response = { 200: Type.Object({ run_id: Uuid(), key: Type.String() }) };

const Body = Type.Object({
  score: optional(Type.Union([Type.Number(), Type.Boolean()])),
  value: optional(Type.Union([Type.Number(), Type.Boolean(), Type.String(), JsonObject()])),
  comment: optional(Text()),
  correction: optional(Type.Union([JsonObject(), Type.String()])),
  metadata: optional(JsonObject()),
});

/** `POST /feedback/tokens/{token}` */
export const leaveFeedback = defineOperation({
  ...shared,
  operationId: 'leaveFeedback',
  method: 'POST',
  summary: 'Send feedback with the token of a link',
  schema: { params, body: Body, response },
  handler: async ({ params: { token }, body, services }) => take(services, token, body),
});

/** The same operation for a link that is opened, with the feedback in its query. */
export const leaveFeedbackByLink = defineOperation({
  ...shared,
  operationId: 'leaveFeedbackByLink',
  method: 'GET',
  summary: 'Send feedback by opening a link',
  schema: {
    params,
    query: Type.Object({
      score: Type.Optional(
        Type.String({ pattern: `${number.source}|^(?:true|false)$`, description: 'A number or a boolean.' }),
      ),
      value: Type.Optional(Text({ description: 'Numbers and booleans are converted.' })),
      comment: Type.Optional(Text()),
      correction: Type.Optional(Text()),
    }),
    response,
  },
  handler: async ({ params: { token }, query: { score, value, ...said }, services }) =>
    take(services, token, {
      ...said,
      score: parseValue(score) as number | boolean | undefined,
      value: parseValue(value),
    }),
});

async function take(services: Services, token: string, said: LeftFeedback) {
  const deps = { ...feedbackDeps(services), signer: services.feedbackSigner };
  const { runId, key } = await takeFeedback(deps, token, said);
  return { run_id: runId, key };
}

/** Converts a query text to a number or boolean if it is one. */
function parseValue(text: string | undefined): string | number | boolean | undefined {
  if (text === 'true' || text === 'false') return text === 'true';
  return text !== undefined && number.test(text) ? Number(text) : text;
}
