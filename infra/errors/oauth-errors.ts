import { caller, type ErrorEntry, transient } from './entry.ts';

/** Errors of OAuth providers and of the authentications of users with them. No message contains text of a provider. */
export const oauthErrors = {
  OIDC_NOT_CONFIGURED: caller(
    404,
    'Sign-in through OpenID Connect is not configured.',
    'Sign in with an API key. The operator can set RUNLAKE_OIDC_ISSUER and RUNLAKE_OIDC_CLIENT_ID.',
  ),
  OIDC_SIGN_IN_EXPIRED: caller(
    401,
    'The sign-in took too long, or the browser sent no cookie.',
    'Sign in again within ten minutes, in the same browser.',
  ),
  OIDC_EMAIL_MISSING: caller(
    403,
    'The OpenID Connect provider names no verified email address of the user.',
    'Let the provider release the claims of the scope `email`.',
  ),
  OIDC_ROLE_MISSING: caller(
    403,
    "The claim '{claim}' gives the user no role.",
    'Give the user a role at the provider, or set RUNLAKE_OIDC_ROLE_CLAIM and RUNLAKE_OIDC_ROLES.',
  ),
  OAUTH_ENDPOINT_NOT_ALLOWED: caller(
    400,
    '{host} is {range}, which is not allowed for OAuth providers.',
    'Use a provider with a public address. The operator can allow loopback and private addresses with RUNLAKE_ALLOW_PRIVATE_ENDPOINTS.',
  ),
  OAUTH_PROVIDER_REFUSED: caller(
    400,
    "The OAuth provider '{provider}' refused the request: {reason}.",
    'Check client_id, client_secret, token_endpoint_auth_method and the URLs of the provider, and that the redirect_uri is registered there.',
  ),
  OAUTH_RESPONSE_TOO_LARGE: caller(
    400,
    'The response of {host} is larger than {limitBytes} bytes.',
    'Check the URLs of the provider.',
  ),
  // Status 502, because the server of the provider failed, and the same request may succeed later.
  OAUTH_PROVIDER_UNAVAILABLE: transient(
    502,
    "The OAuth provider '{provider}' cannot be reached: {reason}.",
    'Retry, and check the server of the provider.',
  ),
  OAUTH_DISCOVERY_FAILED: caller(
    400,
    'The authorization server of {server} cannot be used: {reason}.',
    'Check mcp_server_url. If the server does not support dynamic client registration, create the provider with POST /v2/auth/providers.',
  ),
  OAUTH_STATE_INVALID: caller(
    400,
    'The state belongs to no pending authentication: it is wrong, was used already, or is older than ten minutes.',
    'Start again with POST /v2/auth/authenticate.',
  ),
  OAUTH_CONSENT_DENIED: caller(
    400,
    "The user did not give access at the OAuth provider '{provider}'.",
    'Start again with POST /v2/auth/authenticate.',
  ),
} as const satisfies Record<string, ErrorEntry>;
