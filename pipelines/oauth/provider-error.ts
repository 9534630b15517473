import * as oauth from 'oauth4webapi';
import { isRunlakeError, type RunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import { providerTimeoutMs } from './oauth-deps.ts';

/** Whether a token endpoint says that a refresh token or a code is expired, revoked or unknown. RFC 6749, 5.2. */
export function isInvalidGrant(error: unknown): boolean {
  return error instanceof oauth.ResponseBodyError && error.error === 'invalid_grant';
}

/**
 * Converts any error of a request to a provider. The result contains neither the text nor the body of a response,
 * because these may contain secrets, and it has no cause.
 */
export function toProviderError(provider: string, error: unknown): RunlakeError {
  if (isRunlakeError(error)) return error;
  const { reason, isTransient } = explain(error);
  return runlakeError(isTransient ? 'OAUTH_PROVIDER_UNAVAILABLE' : 'OAUTH_PROVIDER_REFUSED', { provider, reason });
}

interface Explanation {
  readonly reason: string;
  readonly isTransient: boolean;
}

/** Describes an error of a request to a server of a provider, without any text of the server. */
export function explain(error: unknown): Explanation {
  if (error instanceof oauth.ResponseBodyError) {
    if (error.status >= 500) return explainStatus(error.status);
    return { reason: `it answered '${error.error.replace(/[^\w.-]/g, '').slice(0, 64)}'`, isTransient: false };
  }
  if (error instanceof oauth.WWWAuthenticateChallengeError) return explainStatus(error.status);
  if (error instanceof oauth.AuthorizationResponseError) return { reason: 'it sent an error', isTransient: false };
  if (error instanceof oauth.OperationProcessingError || error instanceof oauth.UnsupportedOperationError) {
    const { cause } = error as { readonly cause?: unknown };
    if (cause instanceof Response) return explainStatus(cause.status);
    return { reason: 'its response is not one of OAuth 2.0', isTransient: false };
  }
  const { name, code } = error as NodeJS.ErrnoException;
  if (name === 'AbortError' || name === 'TimeoutError') {
    return { reason: `it did not answer within ${providerTimeoutMs} ms`, isTransient: true };
  }
  if (code !== undefined) return { reason: `the connection failed (${code})`, isTransient: true };
  return { reason: 'its response is not valid', isTransient: false };
}

function explainStatus(status: number): Explanation {
  return { reason: `it answered ${status}`, isTransient: status >= 500 || status === 429 };
}
