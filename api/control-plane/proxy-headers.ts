/** Headers of proxied requests and responses. */
import type { IncomingHttpHeaders, OutgoingHttpHeaders } from 'node:http';
import type { FastifyRequest } from 'fastify';
import { forwardedPrefixHeader } from '../server/public-base.ts';
import { removeSessionCookie } from '../server/session-cookie.ts';

/** Headers that concern one connection, besides those that `Connection` lists. Source: RFC 9110, 7.6.1. */
const hopByHopHeaders: readonly string[] = [
  ...['connection', 'keep-alive', 'proxy-connection', 'proxy-authenticate', 'proxy-authorization'],
  ...['te', 'trailer', 'transfer-encoding', 'upgrade', 'http2-settings'],
];

/**
 * Returns the headers that a replica gets. `Host` stays that of the client, because agent cards and redirects contain
 * it. `prefix` is the path of the deployment.
 */
export function toReplicaHeaders(request: FastifyRequest, prefix: string): OutgoingHttpHeaders {
  const { headers, protocol, ip, method } = request;
  const sent: OutgoingHttpHeaders = removeHopByHop(headers);
  // Graph code must not get the session of the user, which has all permissions of a key.
  if (sent.cookie !== undefined) sent.cookie = removeSessionCookie(String(sent.cookie));
  if (sent.cookie === undefined) delete sent.cookie;
  // Node has already responded to `Expect`, and undici refuses it.
  delete sent.expect;
  // Fastify does not read the bodies of these methods.
  if (method === 'GET' || method === 'HEAD') delete sent['content-length'];
  const { 'x-forwarded-for': senders } = headers;
  return {
    ...sent,
    'x-forwarded-for': senders === undefined ? ip : `${senders}, ${ip}`,
    'x-forwarded-host': headers['x-forwarded-host'] ?? headers.host,
    'x-forwarded-proto': headers['x-forwarded-proto'] ?? protocol,
    [forwardedPrefixHeader]: prefix,
  };
}

/**
 * Returns the headers that the client gets: references to paths of the replica become paths below `prefix`.
 *
 * `Location` stays as it is in responses whose status gives it no meaning in HTTP: streams of the agent server name the
 * path for reconnecting there, and its clients append this path to the URL of the deployment.
 */
export function toClientHeaders(
  { status, headers }: { readonly status: number; readonly headers: IncomingHttpHeaders },
  { prefix, origins }: { readonly prefix: string; readonly origins: readonly string[] },
): OutgoingHttpHeaders {
  const sent: OutgoingHttpHeaders = removeHopByHop(headers);
  const { location, 'content-location': contentLocation, 'set-cookie': cookies } = headers;
  const locates = status === 201 || (status >= 300 && status < 400);
  if (location !== undefined && locates) sent.location = addPrefix(location, prefix, origins);
  // Clients search for `/threads/` and `/runs/`, so these must not occur in the prefix.
  if (contentLocation !== undefined && !/\/(?:threads|runs)$/.test(prefix))
    sent['content-location'] = addPrefix(contentLocation, prefix, origins);
  // Without a path of their own, cookies of one deployment would be sent to all others.
  if (cookies !== undefined) sent['set-cookie'] = [cookies].flat().map((cookie) => limitCookie(cookie, prefix));
  return sent;
}

function removeHopByHop(headers: IncomingHttpHeaders): OutgoingHttpHeaders {
  const sent: OutgoingHttpHeaders = { ...headers };
  const listed = headers.connection?.toLowerCase().split(',') ?? [];
  for (const name of [...hopByHopHeaders, ...listed]) delete sent[name.trim()];
  return sent;
}

/** `origins` are those under which the replica may know itself. URLs of other servers stay as they are. */
function addPrefix(reference: string, prefix: string, origins: readonly string[]): string {
  if (reference.startsWith('/') && !reference.startsWith('//')) return prefix + reference;
  const origin = origins.find(
    (each) => reference === each || (/^[/?#]/.test(reference.slice(each.length)) && reference.startsWith(each)),
  );
  return origin === undefined ? reference : prefix + reference.slice(origin.length);
}

function limitCookie(cookie: string, prefix: string): string {
  const [pair = '', ...attributes] = cookie.split(';');
  const path = attributes
    .map((each) => /^\s*path\s*=\s*(\/.*?)\s*$/i.exec(each)?.[1])
    .find((each) => each !== undefined);
  const kept = attributes.filter((each) => !/^\s*(?:path|domain)\s*(?:=|$)/i.test(each));
  return [pair, ...kept, ` Path=${prefix}${path ?? '/'}`].join(';');
}
