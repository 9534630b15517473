import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { type GuardedFetch, openGuardedFetch } from '../../infra/network/guarded-fetch.ts';
import type { Database } from '../../infra/postgres/database.ts';
import type { Sealer } from '../../infra/sealing/sealer.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { readTrustedAuthorities } from '../../infra/tls/trusted-authorities.ts';

export interface OAuthDeps {
  readonly database: Database;
  readonly secretSealer: Sealer;
  /** Sends requests to providers; refuses private addresses unless the operator allows them. */
  readonly fetch: GuardedFetch['fetch'];
  /** Whether URLs of providers may have private addresses and plain HTTP. */
  readonly allowPrivate: boolean;
  readonly limits: Pick<Config, 'maxOAuthProviders' | 'maxOAuthTokens' | 'maxOAuthAuthentications'>;
  readonly logger: Logger;
  close(): void;
}

export const providerTimeoutMs = 10_000;
const maxResponseBytes = 256 * 1024;
const maxConnections = 64;

export function openOAuth(config: Config, deps: Pick<OAuthDeps, 'database' | 'secretSealer' | 'logger'>): OAuthDeps {
  const http = openGuardedFetch({
    allowPrivate: config.allowPrivateEndpoints,
    refuse: (host, { about }) => runlakeError('OAUTH_ENDPOINT_NOT_ALLOWED', { host, range: about }),
    refuseSize: (host) => runlakeError('OAUTH_RESPONSE_TOO_LARGE', { host, limitBytes: maxResponseBytes }),
    maxConnections,
    maxResponseBytes,
    timeoutMs: providerTimeoutMs,
    authorities: readTrustedAuthorities(config),
  });
  return { ...deps, limits: config, allowPrivate: config.allowPrivateEndpoints, fetch: http.fetch, close: http.close };
}

export function createFieldError(field: string, msg: string) {
  return runlakeError('INVALID_REQUEST', {}, { fields: [{ loc: ['body', field], msg, type: 'value_error' }] });
}
