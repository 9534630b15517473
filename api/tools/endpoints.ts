/**
 * Other installations whose main API the tools use over HTTP, with the key of the caller. Also used by `runlake tools
 * --stdio`, which has no main API of its own.
 */
import { isRunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import { openGuardedFetch } from '../../infra/network/guarded-fetch.ts';
import { stripPrefix } from '../server/public-base.ts';
import { type SendToMainApi, type ToolCredentials, toHeaders } from './main-api.ts';

/**
 * Returns the address without prefix and trailing slash, because clients write an endpoint with `/api`, `/api/v1` or
 * neither. Undefined if it is not an HTTP URL.
 */
export function normaliseEndpoint(endpoint: string): string | undefined {
  if (!URL.canParse(endpoint) || !/^https?:\/\//i.test(endpoint)) return undefined;
  const { origin, pathname } = new URL(endpoint);
  return stripPrefix(origin + pathname);
}

export interface EndpointOptions {
  /** Allows loopback and private addresses. */
  readonly allowPrivate: boolean;
  readonly maxResponseBytes: number;
  readonly authorities?: readonly string[] | undefined;
}

export interface Endpoints {
  /** Sends requests to an endpoint that {@link normaliseEndpoint} returned. @throws TOOLS_ENDPOINT_UNAVAILABLE */
  sendTo(endpoint: string): SendToMainApi;
  close(): void;
}

const maxConnections = 64;

export function openEndpoints({ allowPrivate, maxResponseBytes, authorities }: EndpointOptions): Endpoints {
  const http = openGuardedFetch({
    allowPrivate,
    refuse: (host, { about }) =>
      runlakeError('TOOLS_ENDPOINT_UNAVAILABLE', { endpoint: host, reason: `it resolves to ${about}` }),
    maxConnections,
    authorities,
    maxResponseBytes,
    refuseSize: () => runlakeError('TOOL_ANSWER_TOO_LARGE', { limitBytes: maxResponseBytes }),
  });
  return {
    sendTo:
      (endpoint) =>
      async ({ method, url, headers, body = null, signal }) => {
        try {
          const response = await http.fetch(endpoint + url, { method, headers, body, signal });
          return { status: response.status, text: await response.text() };
        } catch (error) {
          signal.throwIfAborted();
          if (isRunlakeError(error)) throw error;
          const reason = (error as NodeJS.ErrnoException).code ?? 'the connection broke';
          throw runlakeError('TOOLS_ENDPOINT_UNAVAILABLE', { endpoint, reason }, { cause: error });
        }
      },
    close: () => http.close(),
  };
}

/**
 * Returns false if the endpoint refuses the key, and true if it accepts the key or only refuses a permission.
 *
 * @throws TOOLS_ENDPOINT_UNAVAILABLE, also if the response does not depend on the key, such as a redirect or 503.
 */
export async function acceptsKey(
  send: SendToMainApi,
  credentials: ToolCredentials,
  { endpoint, signal }: { readonly endpoint: string; readonly signal: AbortSignal },
): Promise<boolean> {
  const headers = toHeaders(credentials);
  const { status, text } = await send({ method: 'GET', url: '/api/v1/sessions?limit=1', headers, signal });
  // Runlake returns an error code if a valid key lacks a permission. Other servers return 403 without one for an
  // unknown key.
  const isRunlakeRefusal = [400, 403].includes(status) && text.includes('"code"');
  if ((status >= 200 && status < 300) || isRunlakeRefusal) return true;
  if (status === 401 || status === 403) return false;
  throw runlakeError('TOOLS_ENDPOINT_UNAVAILABLE', { endpoint, reason: `it answers ${status}` });
}
