/** Headers of proxied requests and responses. */
import type { IncomingHttpHeaders, IncomingMessage, OutgoingHttpHeaders } from 'node:http';
import type { FastifyRequest } from 'fastify';
import { forwardedPrefixHeader } from '../server/public-base.ts';
import { readSessionCookie, removeOwnCookies, setsOwnCookie } from '../server/session-cookie.ts';
import { ticketHeader } from '../server/session-ticket.ts';

/** Headers that concern one connection, in addition to those that `Connection` lists. Source: RFC 9110, 7.6.1. */
const hopByHopHeaders: readonly string[] = [
  ...['connection', 'keep-alive', 'proxy-connection', 'proxy-authenticate', 'proxy-authorization'],
  ...['te', 'trailer', 'transfer-encoding', 'upgrade', 'http2-settings'],
];

/**
 * Response headers that apply to the whole origin. A deployment shares its origin with the main API and all other
 * deployments, so these headers could delete their data, control their pages or redirect their requests.
 */
const originWideHeaders: readonly string[] = [
  ...['alt-svc', 'clear-site-data', 'nel', 'report-to', 'service-worker-allowed', 'strict-transport-security'],
];

/**
 * Gives pages of graph code an opaque origin. On the origin of the main API, their scripts could act as any user who
 * opens them in a browser with a session. Scripts, forms and windows work; requests to the deployment itself are
 * subject to its CORS settings (origin `null`). Browsers ignore this header on responses that are not pages.
 */
const pagePolicy =
  'sandbox allow-scripts allow-forms allow-modals allow-downloads allow-popups allow-popups-to-escape-sandbox';

/**
 * Returns the headers that a replica gets. `Host` stays that of the client, because agent cards and redirects contain
 * it. `prefix` is the path of the deployment, `ticket` replaces the session.
 */
export function toReplicaHeaders(request: FastifyRequest, prefix: string, ticket?: string): OutgoingHttpHeaders {
  const { headers, protocol, method, socket } = request;
  const sent: OutgoingHttpHeaders = removeHopByHop(headers);
  // Graph code must not get the session of the user, which has all permissions of a key.
  if (sent.cookie !== undefined) sent.cookie = removeOwnCookies(String(sent.cookie));
  if (sent.cookie === undefined) delete sent.cookie;
  // Only the proxy sends tickets.
  delete sent[ticketHeader];
  if (ticket !== undefined) sent[ticketHeader] = ticket;
  // Graph code must not get the CSRF token of the session, also if it gets no ticket.
  if (readSessionCookie(headers) !== undefined) delete sent['x-csrf-token'];
  // Node has already responded to `Expect`, and undici refuses it.
  delete sent.expect;
  // Fastify does not read the bodies of these methods.
  if (method === 'GET' || method === 'HEAD') delete sent['content-length'];
  const addresses = [headers['x-forwarded-for'], socket.remoteAddress].filter(Boolean);
  return {
    ...sent,
    'x-forwarded-for': addresses.join(', '),
    'x-forwarded-host': headers['x-forwarded-host'] ?? headers.host,
    'x-forwarded-proto': headers['x-forwarded-proto'] ?? protocol,
    [forwardedPrefixHeader]: prefix,
  };
}

/**
 * Returns the headers that the client gets: paths of the replica become paths below `prefix`.
 *
 * `Location` is changed only for statuses with which HTTP defines it. Streams of the agent server have status 200 and a
 * `Location` from which clients resume; clients append it to the URL of the deployment.
 */
export function toClientHeaders(
  { status, headers }: { readonly status: number; readonly headers: IncomingHttpHeaders },
  { prefix, origins }: { readonly prefix: string; readonly origins: readonly string[] },
): OutgoingHttpHeaders {
  const sent: OutgoingHttpHeaders = removeHopByHop(headers);
  for (const name of originWideHeaders) delete sent[name];
  const { 'content-security-policy': ownPolicy } = headers;
  sent['content-security-policy'] = ownPolicy === undefined ? pagePolicy : `${ownPolicy}, ${pagePolicy}`;
  const { location, 'content-location': contentLocation, 'set-cookie': cookies } = headers;
  const locates = status === 201 || (status >= 300 && status < 400);
  if (location !== undefined && locates) sent.location = addPrefix(location, prefix, origins);
  // Clients search for `/threads/` and `/runs/`, so these must not occur in the prefix.
  if (contentLocation !== undefined && !/\/(?:threads|runs)$/.test(prefix))
    sent['content-location'] = addPrefix(contentLocation, prefix, origins);
  if (cookies !== undefined)
    sent['set-cookie'] = [cookies].flat().flatMap((cookie) => limitCookie(cookie, prefix) ?? []);
  return sent;
}

/** Returns the lines of the response to a handshake that the client gets. It keeps the headers of the connection. */
export function toHandshakeLines(
  { statusMessage = '', rawHeaders }: Pick<IncomingMessage, 'statusMessage' | 'rawHeaders'>,
  prefix: string,
): string[] {
  const lines = [`HTTP/1.1 101 ${statusMessage}`];
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const [name = '', value = ''] = rawHeaders.slice(index, index + 2);
    if (originWideHeaders.includes(name.toLowerCase())) continue;
    const sent = name.toLowerCase() === 'set-cookie' ? limitCookie(value, prefix) : value;
    if (sent !== undefined) lines.push(`${name}: ${sent}`);
  }
  return lines;
}

function removeHopByHop(headers: IncomingHttpHeaders): OutgoingHttpHeaders {
  const sent: OutgoingHttpHeaders = { ...headers };
  const listed = headers.connection?.toLowerCase().split(',') ?? [];
  for (const name of [...hopByHopHeaders, ...listed]) delete sent[name.trim()];
  return sent;
}

/** `origins` are the origins that the replica may use for itself. URLs of other servers stay unchanged. */
function addPrefix(reference: string, prefix: string, origins: readonly string[]): string {
  if (reference.startsWith('/') && !reference.startsWith('//')) return prefix + reference;
  const origin = origins.find(
    (each) => reference === each || (/^[/?#]/.test(reference.slice(each.length)) && reference.startsWith(each)),
  );
  return origin === undefined ? reference : prefix + reference.slice(origin.length);
}

/**
 * Limits a cookie to the paths of the deployment: otherwise it would be sent to all others. Returns undefined for a cookie
 * that would hide one of Runlake.
 */
function limitCookie(cookie: string, prefix: string): string | undefined {
  if (setsOwnCookie(cookie)) return undefined;
  const [pair = '', ...attributes] = cookie.split(';');
  const path = attributes
    .map((each) => /^\s*path\s*=\s*(\/.*)$/i.exec(each)?.[1]?.trimEnd())
    .find((each) => each !== undefined);
  const kept = attributes.filter((each) => !/^\s*(?:path|domain)\s*(?:=|$)/i.test(each));
  return [pair, ...kept, ` Path=${prefix}${path ?? '/'}`].join(';');
}
