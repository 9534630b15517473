import type { FastifyRequest } from 'fastify';
import type { Config } from '../../infra/config/settings.ts';
import { formatHost } from '../../infra/network/format-host.ts';
import { toCanonicalPath } from './canonical-url.ts';

const hostPattern = /^(?:[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::\d{1,5})?$/i;

/**
 * Returns the absolute URL of `path` (without prefix): under `RUNLAKE_PUBLIC_URL` if it is set, otherwise under the
 * `Host` of the request, otherwise under the local address of the connection. Without `RUNLAKE_PUBLIC_URL`, the URL
 * must be returned only to the sender of `request`.
 */
export function buildPublicUrl(
  path: string,
  request: FastifyRequest,
  { publicUrl }: Pick<Config, 'publicUrl'>,
): string {
  return publicUrl === undefined ? getRequestOrigin(request) + toCanonicalPath(path) : joinPublicUrl(publicUrl, path);
}

/** Returns the absolute URL of `path` (without prefix) under a configured URL. */
export function joinPublicUrl(publicUrl: string, path: string): string {
  return stripPrefix(publicUrl) + toCanonicalPath(path);
}

/** Returns the absolute URL of a page, like {@link buildPublicUrl} but without a prefix. */
export function buildPageUrl(path: string, request: FastifyRequest, { publicUrl }: Pick<Config, 'publicUrl'>): string {
  return (publicUrl === undefined ? getRequestOrigin(request) : stripPrefix(publicUrl)) + path;
}

/** Header in which the proxy of deployments sends a replica the path under which clients reach it. */
export const forwardedPrefixHeader = 'x-forwarded-prefix';

/** Returns the path under which the client reaches this server through a proxy, without a trailing slash, or `''`. */
export function getForwardedPrefix({ headers }: FastifyRequest): string {
  const prefix = headers[forwardedPrefixHeader];
  return typeof prefix === 'string' && /^(?:\/[\w.~-]+){1,8}$/.test(prefix) ? prefix : '';
}

/** Returns the URL under which the client reaches the agent server, without a trailing slash. */
export function getAgentServerBase(
  request: FastifyRequest,
  { agentsPublicUrl }: Pick<Config, 'agentsPublicUrl'>,
): string {
  return agentsPublicUrl?.replace(/\/+$/, '') ?? getRequestOrigin(request) + getForwardedPrefix(request);
}

/** Removes the prefix and trailing slashes from a URL of the main API. */
export function stripPrefix(publicUrl: string): string {
  return publicUrl.replace(/\/+$/, '').replace(/\/api(?:\/v1)?$/, '');
}

/**
 * Returns the `Host` of a request as a URL without a path. If the header is missing or invalid, returns the local
 * address of the connection.
 */
export function getRequestOrigin(request: FastifyRequest): string {
  return `${request.protocol}://${resolveHost(request)}`;
}

function resolveHost({ headers, socket }: FastifyRequest): string {
  if (headers.host !== undefined && hostPattern.test(headers.host)) return headers.host;
  const { localAddress = '127.0.0.1', localPort = 80 } = socket;
  return formatHost(localAddress, localPort);
}
