import type { FastifyRequest } from 'fastify';
import type { Config } from '../../infra/config/settings.ts';
import { canonicalPath } from './canonical-url.ts';

const hostForm = /^(?:[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::\d{1,5})?$/i;

/**
 * The absolute URL of `path` (without its prefix) as whoever sent `request` can reach it: under `RUNLAKE_PUBLIC_URL`, else under
 * the host that the request named, else under the address that it came in on. The last two only ever go back to who asked.
 */
export function publicUrlOf(path: string, request: FastifyRequest, { publicUrl }: Pick<Config, 'publicUrl'>): string {
  return publicUrl === undefined ? reachedAt(request) + canonicalPath(path) : urlUnder(publicUrl, path);
}

/** The same, for those who have no request. */
export function urlUnder(publicUrl: string, path: string): string {
  // Prefixes may come twice, but they need not.
  const base = publicUrl.replace(/\/+$/, '').replace(/\/api(?:\/v1)?$/, '');
  return base + canonicalPath(path);
}

/** The host that a request named or, where that is none, the address that it came in on, as a URL without a path. */
export function reachedAt(request: FastifyRequest): string {
  return `${request.protocol}://${hostOf(request)}`;
}

function hostOf({ headers, socket }: FastifyRequest): string {
  if (headers.host !== undefined && hostForm.test(headers.host)) return headers.host;
  const { localAddress = '127.0.0.1', localPort = 80 } = socket;
  return localAddress.includes(':') ? `[${localAddress}]:${localPort}` : `${localAddress}:${localPort}`;
}
