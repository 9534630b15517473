import { Type } from 'typebox';
import { type LeftFeedback, leaveFeedback as takeFeedback } from '../../../pipelines/feedback/leave-feedback.ts';
import { JsonObject, optional, Text, Uuid } from '../../server/formats.ts';
import { defineOperation } from '../../server/operation.ts';
import type { Services } from '../../server/services.ts';
import { feedbackBodyErrors, feedbackPorts } from './feedback-ports.ts';

const number = /^[+-]?\d{1,300}(?:\.\d{1,300})?(?:e[+-]?\d{1,2})?$/i;

const shared = {
  path: '/feedback/tokens/:token',
  tag: 'feedback',
  description:
    'Needs no key: the token is in the links that runs of the agent server with `feedback_keys` end with. It is for that run and key ' +
    'alone, until it expires. Sent again, it replaces what was there.',
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
  summary: 'Leave the feedback that a link is for',
  schema: { params, body: Body, response },
  handler: async ({ params: { token }, body, services }) => take(services, token, body),
});

/** The same as a link that is opened, with what is said in its query. */
export const leaveFeedbackByLink = defineOperation({
  ...shared,
  operationId: 'leaveFeedbackByLink',
  method: 'GET',
  summary: 'Leave the feedback that a link is for, by opening it',
  schema: {
    params,
    query: Type.Object({
      score: Type.Optional(
        Type.String({ pattern: `${number.source}|^(?:true|false)$`, description: 'A number or a boolean.' }),
      ),
      value: Type.Optional(Text({ description: 'A number or a boolean is taken as such.' })),
      comment: Type.Optional(Text()),
      correction: Type.Optional(Text()),
    }),
    response,
  },
  handler: async ({ params: { token }, query: { score, value, ...said }, services }) =>
    take(services, token, { ...said, score: plain(score) as number | boolean | undefined, value: plain(value) }),
});

async function take(services: Services, token: string, said: LeftFeedback) {
  const ports = { ...feedbackPorts(services), signer: services.feedbackSigner };
  const { runId, key } = await takeFeedback(ports, token, said);
  return { run_id: runId, key };
}

/** What a text in a query stands for. */
function plain(text: string | undefined): string | number | boolean | undefined {
  if (text === 'true' || text === 'false') return text === 'true';
  return text !== undefined && number.test(text) ? Number(text) : text;
}
