import type { FastifyRequest } from 'fastify';
import { type Static, Type } from 'typebox';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { createLinks, type FeedbackLink, listLinks, type NewLink } from '../../pipelines/feedback/feedback-links.ts';
import { optional, parseOptionalTime, Text, Timestamp, Uuid } from '../server/formats.ts';
import { pageParameters } from '../server/list-parameters.ts';
import { defineOperation } from '../server/operation.ts';
import { buildPublicUrl } from '../server/public-base.ts';
import type { Services } from '../server/services.ts';
import { NewConfig, toConfig } from './feedback-configs.ts';

const defaultSeconds = 3 * 3_600;
const maxSeconds = 366 * 86_400;
const TimeAmount = () => Type.Optional(Type.Integer({ minimum: 0, maximum: 1_000_000 }));

const NewToken = Type.Object({
  id: optional(Uuid({ description: 'It is the token in the link: choose a random one. Default: the server chooses.' })),
  run_id: Uuid({ description: 'The run may arrive later.' }),
  feedback_key: Text({ minLength: 1, maxLength: 180 }),
  expires_in: optional(Type.Object({ days: TimeAmount(), hours: TimeAmount(), minutes: TimeAmount() })),
  expires_at: optional(Timestamp({ description: 'Default: in three hours. At most a year from now.' })),
  feedback_config: optional(NewConfig, {
    description: 'Feedback must match it, and it is kept as the config of the key, unless the key has one.',
  }),
});

const Token = Type.Object({
  id: Uuid(),
  url: Type.String({ description: 'Accepts feedback without a key, see `POST /feedback/tokens/{token}`.' }),
  expires_at: Timestamp(),
  feedback_key: Type.String(),
});

function readExpiry({ expires_in, expires_at }: Static<typeof NewToken>): number {
  const nowSeconds = Math.floor(Date.now() / 1_000);
  const { days = 0, hours = 0, minutes = 0 } = expires_in ?? {};
  const seconds = days * 86_400 + hours * 3_600 + minutes * 60;
  const expiresAtMicros = parseOptionalTime(expires_at);
  const expiresInSeconds =
    expiresAtMicros === undefined ? defaultSeconds : Math.floor(expiresAtMicros / 1e6) - nowSeconds;
  const lifetimeSeconds = expires_in ? seconds : expiresInSeconds;
  if (lifetimeSeconds <= 0 || lifetimeSeconds > maxSeconds) {
    throw runlakeError('BAD_REQUEST', { reason: 'A feedback link must expire in the future, within a year.' });
  }
  return nowSeconds + lifetimeSeconds;
}

const toNewLink = (token: Static<typeof NewToken>): NewLink => ({
  id: token.id?.toLowerCase(),
  runId: token.run_id.toLowerCase(),
  key: token.feedback_key,
  expiresAtSeconds: readExpiry(token),
  config: token.feedback_config ? toConfig(token.feedback_config) : undefined,
});

const toToken = ({ id, key, expiresAtSeconds }: FeedbackLink, request: FastifyRequest, services: Services) => ({
  id,
  url: buildPublicUrl(`/feedback/tokens/${id}`, request, services.config),
  expires_at: new Date(expiresAtSeconds * 1_000).toISOString(),
  feedback_key: key,
});

const access = { permission: 'feedback:write', tenantScope: 'workspace' } as const;

const createTokens = defineOperation({
  operationId: 'createFeedbackTokens',
  method: 'POST',
  path: '/feedback/tokens',
  summary: 'Create links that accept feedback without a key',
  description: 'Each link is valid for one run and feedback key until it expires. A list of requests gets a list.',
  access,
  errors: ['CONFLICT', 'LIMIT_REACHED'],
  schema: {
    body: Type.Union([NewToken, Type.Array(NewToken, { minItems: 1, maxItems: 1_000 })]),
    response: { 200: Type.Union([Token, Type.Array(Token)]) },
  },
  handler: async ({ caller, body, request, services }) => {
    const links = await createLinks(services, caller, (Array.isArray(body) ? body : [body]).map(toNewLink));
    const tokens = links.map((link) => toToken(link, request, services));
    return Array.isArray(body) ? tokens : (tokens[0] as Static<typeof Token>);
  },
});

const listTokens = defineOperation({
  operationId: 'listFeedbackTokens',
  method: 'GET',
  path: '/feedback/tokens',
  summary: 'List the links for feedback on a run',
  description: 'Those that have not expired, oldest first.',
  access,
  schema: {
    query: Type.Object({
      run_id: Uuid(),
      ...pageParameters,
      limit: Type.Integer({ minimum: 1, maximum: 1_000, default: 1_000 }),
    }),
    response: { 200: Type.Array(Token) },
  },
  handler: async ({ caller, query, request, services }) => {
    const { run_id: runId, ...page } = query;
    const links = await listLinks(services, caller.workspaceId, runId.toLowerCase(), page);
    return links.map((link) => toToken(link, request, services));
  },
});

export const feedbackTokenOperations = [createTokens, listTokens];
