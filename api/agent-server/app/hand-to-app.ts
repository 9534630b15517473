import type { IncomingMessage, ServerResponse } from 'node:http';
import { type Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { fault } from '../../../infra/errors/runlake-error.ts';
import { userHeader, userText } from '../../../pipelines/agents/app/app-user.ts';
import type { AppAnswer, HttpApp } from '../../../pipelines/agents/app/http-app.ts';
import type { AgentUser } from '../../../pipelines/agents/auth/agent-user.ts';
import type { ApiForm } from '../../server/api-form.ts';

export interface HandPorts {
  readonly app: Pick<HttpApp, 'send'>;
  readonly bodyLimit: ApiForm['bodyLimit'];
  /** Who asks, where routes of the app are not open to everybody. @throws where nobody is let in. */
  readonly identify: ((request: FastifyRequest, reply: FastifyReply) => Promise<AgentUser>) | undefined;
}

/** Of one connection alone (RFC 9110, 7.6.1), answered here already, or said by this server itself. */
const ofConnection = new Set([
  ...['connection', 'keep-alive', 'proxy-connection', 'proxy-authenticate', 'proxy-authorization', 'te', 'trailer'],
  ...['transfer-encoding', 'upgrade', 'expect', userHeader, 'x-forwarded-for'],
]);

/**
 * Hands a request to the custom app, as it came, and its answer back as that comes. Headers of security are then the app's to choose;
 * which pages may read its answers, where `http.cors` says so, is not.
 *
 * @throws BODY_TOO_LARGE, APP_UNAVAILABLE, APP_FAILED, APP_TIMEOUT; what `identify` throws.
 */
export async function handToApp(request: FastifyRequest, reply: FastifyReply, ports: HandPorts): Promise<void> {
  const user = await ports.identify?.(request, reply);
  const gone = new AbortController();
  const leave = () => gone.abort();
  reply.raw.once('close', leave);
  const accessEnded = request.access?.ended;
  accessEnded?.addEventListener('abort', leave);
  const answer = await ports.app.send({
    method: request.method,
    target: request.originalUrl,
    headers: headersFor(request, user),
    body: bodyOf(request.raw, ports.bodyLimit),
    signal: gone.signal,
  });
  for (const name of ['x-content-type-options', 'x-frame-options']) reply.removeHeader(name);
  const shared = reply.getHeaders();
  reply.hijack();
  try {
    await giveBack(answer, shared as Record<string, string>, reply.raw);
  } catch (err) {
    if (!gone.signal.aborted) request.log.warn({ err, requestId: request.id }, 'an answer of the custom app broke off');
    reply.raw.destroy();
  } finally {
    reply.raw.off('close', leave);
    accessEnded?.removeEventListener('abort', leave);
  }
}

async function giveBack(answer: AppAnswer, shared: Record<string, string>, response: ServerResponse): Promise<void> {
  const own = Object.entries(answer.headers).filter(([name]) => !ofConnection.has(name));
  // What the server in front says of origins holds for all that it answers.
  const said = own.filter(([name]) => !(name in shared) || !name.startsWith('access-control-'));
  const vary = [shared.vary, answer.headers.vary].flat().filter((one) => one !== undefined);
  response.writeHead(answer.status, {
    ...shared,
    ...Object.fromEntries(said.filter(([, value]) => value !== undefined)),
    ...(vary.length > 0 && { vary: vary.join(', ') }),
  });
  // An answer that goes on may say nothing for a while.
  response.flushHeaders();
  await pipeline(answer.body, response);
}

function headersFor(request: FastifyRequest, user: AgentUser | undefined): string[] {
  const { rawHeaders } = request.raw;
  const dropped = new Set([...ofConnection, ...listed(request.headers.connection)]);
  const headers = rawHeaders.flatMap((name, place) =>
    place % 2 === 1 || dropped.has(name.toLowerCase()) ? [] : [name, rawHeaders[place + 1] ?? ''],
  );
  const add = (name: string, value: string | undefined) => {
    if (value !== undefined && request.headers[name] === undefined) headers.push(name, value);
  };
  // Each server on the way adds whom it heard: only what comes last is certain.
  const way = [request.headers['x-forwarded-for'], request.socket.remoteAddress].filter(Boolean);
  headers.push('x-forwarded-for', way.join(', '));
  add('x-forwarded-proto', request.protocol);
  add('x-forwarded-host', request.headers.host);
  add('x-request-id', request.id);
  if (user !== undefined) headers.push(userHeader, userText(user));
  return headers;
}

function listed(header: string | undefined): readonly string[] {
  return (header ?? '').split(',').map((name) => name.trim().toLowerCase());
}

/** Null where the request has none. @throws BODY_TOO_LARGE, also while it comes. */
function bodyOf(raw: IncomingMessage, { bytes: limitBytes, setting: limit }: ApiForm['bodyLimit']): Readable | null {
  const { 'content-length': length, 'transfer-encoding': encoding } = raw.headers;
  if (raw.method === 'GET' || raw.method === 'HEAD' || (encoding === undefined && !Number(length))) return null;
  const tooLarge = () => fault('BODY_TOO_LARGE', { limitBytes, limit });
  if (Number(length) > limitBytes) throw tooLarge();
  let bytes = 0;
  const counting = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      bytes += chunk.length;
      if (bytes > limitBytes) done(tooLarge());
      else done(null, chunk);
    },
  });
  // Where the client breaks off, so does the request to the app.
  raw.once('aborted', () => counting.destroy(fault('BAD_REQUEST', { reason: 'The body broke off.' })));
  return raw.pipe(counting);
}
