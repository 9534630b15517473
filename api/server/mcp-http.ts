/**
 * Requests of the Model Context Protocol over HTTP ("Streamable HTTP"), for the agent server and the tool server. The
 * transport of the official package handles the messages; this file connects it to the HTTP server.
 *
 * Invariant of {@link answerWithoutSession}: nothing outlives its request, and a call whose client disconnects is
 * cancelled.
 *
 *   1. The caller passes a server of the official package that serves this request only.
 *   2. A response that is ready within one turn of the event loop (errors, notifications) is sent with its status.
 *   3. Any other response has status 200: line feeds keep the connection open until the JSON is ready.
 *   4. When the body ends for any reason, the server closes, which aborts its calls.
 */
import { Readable } from 'node:stream';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Server, ServerOptions } from '@modelcontextprotocol/sdk/server/index.js';
import {
  type HandleRequestOptions,
  WebStandardStreamableHTTPServerTransport,
} from '@modelcontextprotocol/sdk/server/webStandardStreamableHttp.js';
import type { RequestHandlerExtra } from '@modelcontextprotocol/sdk/shared/protocol.js';
import {
  ErrorCode,
  isJSONRPCRequest,
  type JSONRPCRequest,
  McpError,
  type ServerNotification,
  type ServerRequest,
  type ServerResult,
} from '@modelcontextprotocol/sdk/types.js';
import { AjvJsonSchemaValidator } from '@modelcontextprotocol/sdk/validation/ajv';
import type { FastifyBaseLogger, FastifyRequest } from 'fastify';
import { dropNullish } from '../../infra/collections/drop-nullish.ts';
import { isRunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import { createLiveBody } from './live-body.ts';
import { RawResponse } from './operation.ts';

/** Options of each server. By default each creates a validator, which takes longer than a quick request. */
export const mcpServerOptions = {
  jsonSchemaValidator: new AjvJsonSchemaValidator(),
} as const satisfies ServerOptions;

export interface McpRequest {
  readonly request: FastifyRequest;
  /** The parsed body: a message or a list of messages. */
  readonly body: unknown;
  /** Interval of the line feeds that keep a connection open. */
  readonly heartbeatMs: number;
  /** Passed to the handlers of the server. */
  readonly authInfo?: HandleRequestOptions['authInfo'];
}

/** Answers a POST with a server that has no session. The server is closed at the end of the response. */
export async function answerWithoutSession(
  server: Server,
  { request, body, heartbeatMs, authInfo }: McpRequest,
): Promise<RawResponse> {
  if (isEmptyBatch(body))
    return buildProtocolError(400, { code: ErrorCode.InvalidRequest, message: 'The list of messages is empty.' });
  const transport = new WebStandardStreamableHTTPServerTransport({ enableJsonResponse: true });
  await server.connect(transport as Parameters<Server['connect']>[0]);
  const responsePromise = transport.handleRequest(toWebRequest(request), {
    parsedBody: body ?? null,
    ...(authInfo && { authInfo }),
  });
  const quick = await Promise.race([responsePromise, nextTurn()]);
  if (quick !== undefined) {
    await server.close();
    return bufferResponse(quick);
  }
  // Clients match an error to their request by its id. An error of a list belongs to no single message.
  const encodeError = (error: unknown) =>
    encodeErrorResponse(isJSONRPCRequest(body) ? body.id : null, {
      code: ErrorCode.InternalError,
      message: toClientMessage(error),
    });
  return new RawResponse({
    headers: { 'content-type': 'application/json' },
    body: createLiveBody<string>({
      heartbeatMs,
      stopping: request.server.drainStarted,
      accessEnded: request.access?.ended,
      source: {
        async *[Symbol.asyncIterator]() {
          yield await (await responsePromise).text();
        },
        close: () => void server.close(),
      },
      encode: (text) => [text],
      heartbeat: '\n',
      encodeSourceError: encodeError,
      encodeServerStop: () => encodeError(runlakeError('DRAINING')),
    }),
  });
}

/** JSON-RPC 2.0, section 6: an empty list is not a batch. The official package accepts it as one without requests. */
export const isEmptyBatch = (body: unknown): boolean => Array.isArray(body) && body.length === 0;

/** An error response that belongs to no message. */
export function buildProtocolError(
  status: number,
  error: { readonly code: number; readonly message: string },
): RawResponse {
  return new RawResponse({
    status,
    headers: { 'content-type': 'application/json' },
    body: encodeErrorResponse(null, error),
  });
}

export type McpExtra = RequestHandlerExtra<ServerRequest, ServerNotification>;
type McpHandler = (request: JSONRPCRequest, extra: McpExtra) => Promise<ServerResult>;

interface Issue {
  readonly path: readonly PropertyKey[];
  readonly message: string;
}

/** The schema of a request in the official package. */
interface RequestSchema<Request> {
  safeParse(
    request: unknown,
  ): { success: true; data: Request } | { success: false; error: { readonly issues: readonly Issue[] } };
}

/** Defines the handler of a method. */
export function handleMcp<Request extends { params?: unknown }>(
  schema: RequestSchema<Request>,
  handle: (params: Request['params'], extra: McpExtra) => ServerResult | Promise<ServerResult>,
): McpHandler {
  return async ({ method, params }, extra) => {
    // Some clients send `null` for parameters that they do not use.
    const parsed = schema.safeParse({ method, ...(params && { params: dropNullish(params) }) });
    if (parsed.success) return handle(parsed.data.params, extra);
    const issues = parsed.error.issues.slice(0, 5).map(({ path, message }) => `${path.join('.')}: ${message}`);
    throw new McpError(ErrorCode.InvalidParams, issues.join('; '));
  };
}

/**
 * Sets the handlers of a server, by method. The official package would validate calls of tools and their results a
 * second time, and answer invalid parameters with an internal error that contains the report of its validator.
 */
export function setMcpHandlers(server: Server, handlers: Readonly<Record<string, McpHandler>>): void {
  server.fallbackRequestHandler = async (request, extra) => {
    const { method } = request;
    if (!Object.hasOwn(handlers, method)) throw new McpError(ErrorCode.MethodNotFound, 'Method not found');
    return (handlers[method] as McpHandler)(request, extra);
  };
}

/** Converts errors to protocol errors, and logs errors that the client did not cause. */
export async function withMcpErrors<T>(log: Pick<FastifyBaseLogger, 'warn'>, result: Promise<T>): Promise<T> {
  try {
    return await result;
  } catch (err) {
    if (err instanceof McpError) throw err;
    if (isRunlakeError(err) && err.class === 'caller') throw new McpError(ErrorCode.InvalidRequest, err.message);
    log.warn({ err }, 'Model Context Protocol request failed');
    throw new McpError(ErrorCode.InternalError, toClientMessage(err));
  }
}

/** Headers that the transport reads; the body is already parsed. */
const transportHeaders = ['accept', 'content-type', 'mcp-protocol-version', 'mcp-session-id', 'last-event-id'];

export function toWebRequest({ method, headers: sent }: FastifyRequest): Request {
  const headers = new Headers();
  for (const name of transportHeaders) {
    const value = sent[name];
    if (typeof value === 'string') headers.set(name, value);
  }
  return new Request('http://runlake/mcp', { method, headers });
}

const eventStream = 'text/event-stream';
/** A line of an event stream that clients ignore. */
const comment = Buffer.from(':\n\n');

async function bufferResponse(response: Response): Promise<RawResponse> {
  return new RawResponse({
    ...copyHead(response),
    ...(response.body !== null && { body: Buffer.from(await response.arrayBuffer()) }),
  });
}

export interface StreamOptions {
  readonly request: FastifyRequest;
  /** Aborting this signal also ends the body. */
  readonly stopping?: AbortSignal;
  /** Called if the client disconnects before an event was sent, after which it cannot resume the stream. */
  readonly onNothingSent?: () => void;
}

/** Sends the body of `response` as it is produced, until the client disconnects or loses its access. */
export async function streamResponse(
  response: Response,
  { request, stopping, onNothingSent }: StreamOptions,
): Promise<RawResponse> {
  if (response.body === null || response.headers.get('content-type') !== eventStream) return bufferResponse(response);
  const reader = response.body.getReader();
  let hasSent = false;
  // Ends a pending read; the transport then regards the stream as closed.
  const cancel = () => void reader.cancel();
  const { disconnected } = request;
  const disconnect = () => {
    cancel();
    if (!hasSent) onNothingSent?.();
  };
  if (disconnected.aborted) disconnect();
  else disconnected.addEventListener('abort', disconnect, { once: true });
  async function* readChunks() {
    // Headers are sent with the first bytes, and clients wait for them.
    yield comment;
    for (let { done, value } = await reader.read(); !done; { done, value } = await reader.read()) {
      hasSent = true;
      yield value;
    }
  }
  const body = Readable.from(readChunks(), { objectMode: false });
  const end = () => {
    cancel();
    body.destroy();
  };
  const ends = [request.access?.ended, stopping];
  for (const signal of ends) {
    if (signal?.aborted) end();
    signal?.addEventListener('abort', end, { once: true });
  }
  body.once('close', () => {
    cancel();
    for (const signal of ends) signal?.removeEventListener('abort', end);
  });
  return new RawResponse({ ...copyHead(response), body });
}

function copyHead({ status, headers }: Response) {
  const { connection: _, ...kept } = Object.fromEntries(headers);
  return { status, headers: kept };
}

function encodeErrorResponse(
  id: string | number | null,
  error: { readonly code: number; readonly message: string },
): Buffer {
  return Buffer.from(JSON.stringify({ jsonrpc: '2.0', id, error }));
}

function toClientMessage(error: unknown): string {
  return (isRunlakeError(error) ? error : runlakeError('INTERNAL')).message;
}
