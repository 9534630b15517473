import { Type } from 'typebox';
import { isRunlakeError } from '../../infra/errors/runlake-error.ts';
import { type CallbackParameters, completeAuthentication } from '../../pipelines/oauth/complete.ts';
import type { OAuthDeps } from '../../pipelines/oauth/oauth-deps.ts';
import { Text } from '../server/formats.ts';
import { defineOperation, RawResponse } from '../server/operation.ts';
import { ProviderId } from './oauth-user.ts';

const mediaType = 'text/html; charset=utf-8';

/**
 * The page contains only text. It must not be cached, and links on it must not send its URL, which contains the code.
 */
const pageHeaders = {
  'content-security-policy': "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'referrer-policy': 'no-referrer',
  'cache-control': 'no-store',
};

const escapes: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};
const escapeHtml = (text: string) => text.replace(/[&<>"']/g, (character) => escapes[character] as string);

function renderPage(status: number, sentence: string): RawResponse {
  const page = `<!doctype html><html lang="en"><meta charset="utf-8"><title>Authentication</title><p>${escapeHtml(sentence)}</p></html>\n`;
  return new RawResponse({ status, headers: pageHeaders, body: Buffer.from(page) });
}

const Parameter = (maxLength: number) => Type.Optional(Text({ maxLength }));

const params = Type.Object({ provider_id: ProviderId() });
const callbackFields = {
  code: Parameter(8_192),
  state: Parameter(1_024),
  error: Parameter(1_024),
  error_description: Parameter(8_192),
  iss: Parameter(2_048),
};
const response = {
  200: Type.String({ description: 'A page with one sentence.' }),
  400: Type.String({ description: 'A page with one sentence.' }),
};

/** Completes the authentication of a redirect. Returns a page with the result in one sentence. */
async function completeAndTell(
  oauth: OAuthDeps,
  providerId: string,
  { state, code, error, iss }: Partial<CallbackParameters>,
): Promise<RawResponse> {
  if (state === undefined) return renderPage(400, 'This link is incomplete, so no access was given.');
  try {
    const name = await completeAuthentication(oauth, providerId, { state, code, error, iss });
    return renderPage(200, `You have given access to ${name}, and can close this page.`);
  } catch (raw) {
    if (!isRunlakeError(raw)) throw raw;
    const sentence = sentences[raw.code];
    if (sentence === undefined) throw raw;
    return renderPage(400, sentence);
  }
}

/** Messages of the page by error code. The text of the provider is never shown. */
const sentences: Readonly<Record<string, string>> = {
  OAUTH_STATE_INVALID: 'This link was used already, or is older than ten minutes: please start again.',
  OAUTH_CONSENT_DENIED: 'You have not given access, and nothing was stored.',
  OAUTH_PROVIDER_REFUSED: 'The provider did not confirm the access: please start again.',
  OAUTH_RESPONSE_TOO_LARGE: 'The provider did not confirm the access: please start again.',
  OAUTH_PROVIDER_UNAVAILABLE: 'The provider did not respond: please start again.',
  OAUTH_ENDPOINT_NOT_ALLOWED: 'The address of the provider is not allowed, so no access was given.',
  LIMIT_REACHED: 'The organization has too many tokens, so no access was given.',
};

const authCallback = defineOperation({
  operationId: 'completeAuthentication',
  method: 'GET',
  path: '/v2/auth/callback/:provider_id',
  summary: 'Receive a user whom the provider redirects',
  access: { public: true, tenantScope: 'none' },
  errors: ['SEAL_BROKEN', 'SEAL_KEY_UNKNOWN'],
  schema: { params, query: Type.Object(callbackFields), response, produces: mediaType },
  handler: ({ params: { provider_id }, query, services: { oauth } }) => completeAndTell(oauth, provider_id, query),
});

const hostCallback = defineOperation({
  ...authCallback,
  operationId: 'completeHostAuthentication',
  mount: 'root',
  path: '/host-oauth-callback/:provider_id',
  summary: 'Receive a user whom the provider redirects to the registered URI',
});

const setupCallback = defineOperation({
  operationId: 'completeSetup',
  method: 'GET',
  path: '/v2/auth/setup/:provider_id',
  summary: 'Receive a user who has installed or changed a GitHub app',
  description: 'For the setup URL of a GitHub app. Completes an authentication if the parameters have a code.',
  access: { public: true, tenantScope: 'none' },
  errors: ['SEAL_BROKEN', 'SEAL_KEY_UNKNOWN'],
  schema: {
    params,
    query: Type.Object({
      ...callbackFields,
      setup_action: Parameter(64),
      installation_id: Type.Optional(Type.Integer({ minimum: 0 })),
    }),
    response,
    produces: mediaType,
  },
  handler: async ({ params: { provider_id }, query, services: { oauth } }) => {
    const { state, code, error } = query;
    const isRedirect = state !== undefined && (code !== undefined || error !== undefined);
    if (!isRedirect) return renderPage(200, 'The provider has saved the installation, and you can close this page.');
    return completeAndTell(oauth, provider_id, query);
  },
});

export const callbackOperations = [authCallback, hostCallback, setupCallback];
