import type { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { isJsonContentType } from '@modelcontextprotocol/sdk/shared/mediaType.js';
import {
  isInitializeRequest,
  isJSONRPCRequest,
  type JSONRPCMessage,
  type JSONRPCRequest,
  SUPPORTED_PROTOCOL_VERSIONS,
} from '@modelcontextprotocol/sdk/types.js';
import type { FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import type { Config } from '../../infra/config/settings.ts';
import type { HealthCheck } from '../../infra/telemetry/telemetry-server.ts';
import { getMetrics, getReady } from '../main/health.ts';
import type { ApiProfile, CustomAccess } from '../server/api-form.ts';
import { loopbackOrigins, parseOrigins } from '../server/cross-origin.ts';
import {
  answerWithoutSession,
  buildProtocolError,
  isEmptyBatch,
  streamResponse,
  toWebRequest,
} from '../server/mcp-http.ts';
import {
  type Access,
  listByTag,
  type Operation,
  type OperationSchema,
  RawResponse,
  type TypedOperation,
  type UntaggedOperation,
} from '../server/operation.ts';
import { credentialHeaders, type ToolCaller } from './caller.ts';
import type { Session, Sessions } from './sessions.ts';

/** The services that operations of the tool server use. */
export interface ToolServices {
  readonly config: Config;
  readonly healthChecks: readonly HealthCheck[];
  readonly createServer: () => Server;
  readonly sessions: Sessions;
}

function defineToolOperation<const A extends Access, const S extends OperationSchema>(
  operation: Omit<TypedOperation<A, S, ToolServices>, 'mount' | 'errorStyle'>,
): UntaggedOperation {
  return { ...operation, mount: 'root', errorStyle: 'mcp' };
}

/** Each tool needs the permissions of the operations of the main API that it uses. */
const anyKey = { anyKey: true, tenantScope: 'organization' } as const;
const accessErrors = [
  'TOOLS_KEY_MISSING',
  'TOOLS_ENDPOINT_FORBIDDEN',
  'TOOLS_ENDPOINT_UNAVAILABLE',
  'ORIGIN_NOT_ALLOWED',
] as const;

const Message = (description: string) => Type.Unknown({ description });

/** Body of `GET /health`, by which `runlake doctor` recognises the tool server. */
export const healthText = 'Runlake tool server is running';

const getHealth = defineToolOperation({
  operationId: 'getHealth',
  method: 'GET',
  path: '/health',
  summary: 'Check that the tool server is up',
  access: { public: true, tenantScope: 'none' },
  servesWhileDraining: true,
  schema: { response: { 200: Type.String() }, produces: 'text/plain; charset=utf-8' },
  handler: async () => new RawResponse({ body: Buffer.from(healthText) }),
});

const postToolsMcp = defineToolOperation({
  operationId: 'postToolsMcp',
  method: 'POST',
  path: '/mcp',
  summary: 'Send a message of the Model Context Protocol',
  description:
    'Streamable HTTP. `initialize` creates a session: the client sends its id in `Mcp-Session-Id` with further requests. The response ' +
    'to a request that takes longer, to a list and to `initialize` is an event stream that the client can resume; others are JSON. ' +
    'Requests without a session get JSON.',
  access: anyKey,
  errors: accessErrors,
  schema: {
    body: Message('A JSON-RPC 2.0 message, or a list of messages.'),
    response: {
      200: Message('A JSON-RPC 2.0 response.'),
      202: Type.Null(),
      404: Message('There is no such session: create another.'),
      406: Message('The header Accept must include both application/json and text/event-stream.'),
    },
  },
  handler: async ({ request, body, services }) => {
    const caller = request.toolCaller as ToolCaller;
    // The transport passes it to the handlers of the server.
    const authInfo = { token: '', clientId: caller.keyId, scopes: [], extra: { ...caller } };
    const sessionId = readSessionId(request);
    if (isEmptyBatch(body) || (sessionId === undefined && !isInitializeRequest(body))) {
      const { toolsHeartbeatMs: heartbeatMs } = services.config;
      return answerWithoutSession(services.createServer(), { request, body, heartbeatMs, authInfo });
    }
    const session =
      sessionId === undefined
        ? await services.sessions.create(caller.keyId)
        : services.sessions.find(caller.keyId, sessionId);
    if (session === undefined) return sessionNotFound();
    const { transport } = session;
    const answer = isSingleRequest(request, body)
      ? await transport.answer(body, { authInfo }, () => toWebRequest(request))
      : await transport.handleRequest(toWebRequest(request), { parsedBody: body ?? null, authInfo });
    if (!(answer instanceof Response)) return answerWithJson(answer, transport);
    return streamResponse(answer, { request, onNothingSent: () => cancelRequests(session, body) });
  },
});

const getToolsMcp = defineToolOperation({
  operationId: 'getToolsMcp',
  method: 'GET',
  path: '/mcp',
  summary: 'Read the messages of a session, or resume a stream',
  description: 'With `Last-Event-ID`, the messages after that one. Without a session: 405.',
  access: anyKey,
  errors: accessErrors,
  schema: {
    response: {
      200: Type.String(),
      404: Message('There is no such session: create another.'),
      405: Message('The request names no session.'),
      406: Message('The header Accept must include text/event-stream.'),
      409: Message('The session has such a stream already.'),
    },
    produces: 'text/event-stream',
  },
  handler: async ({ request, services }) => {
    const sessionId = readSessionId(request);
    if (sessionId === undefined) return methodNotAllowed();
    const session = services.sessions.find((request.toolCaller as ToolCaller).keyId, sessionId);
    if (session === undefined) return sessionNotFound();
    const response = await session.transport.handleRequest(toWebRequest(request));
    return streamResponse(response, { request, stopping: request.server.drainStarted });
  },
});

const deleteToolsMcp = defineToolOperation({
  operationId: 'deleteToolsMcp',
  method: 'DELETE',
  path: '/mcp',
  summary: 'End a session',
  access: anyKey,
  errors: accessErrors,
  schema: {
    response: {
      200: Type.Null(),
      404: Message('There is no such session.'),
      405: Message('The request names no session.'),
    },
  },
  handler: async ({ request, services }) => {
    const sessionId = readSessionId(request);
    if (sessionId === undefined) return methodNotAllowed();
    const session = services.sessions.find((request.toolCaller as ToolCaller).keyId, sessionId);
    if (session === undefined) return sessionNotFound();
    return streamResponse(await session.transport.handleRequest(toWebRequest(request)), { request });
  },
});

export const toolOperations: readonly Operation[] = listByTag({
  health: [getHealth, getReady, getMetrics],
  mcp: [postToolsMcp, getToolsMcp, deleteToolsMcp],
});

function readSessionId({ headers }: FastifyRequest): string | undefined {
  const value = headers['mcp-session-id'];
  return typeof value === 'string' && value !== '' ? value : undefined;
}

/**
 * Returns whether the body is a single request, other than `initialize`, with headers that the official package accepts.
 * All others are for the package.
 */
function isSingleRequest({ headers }: FastifyRequest, body: unknown): body is JSONRPCRequest {
  const { accept = '', 'content-type': type, 'mcp-protocol-version': version } = headers;
  return (
    isJSONRPCRequest(body) &&
    body.method !== 'initialize' &&
    isJsonContentType(type ?? null) &&
    [jsonType, 'text/event-stream'].every((each) => accept.includes(each)) &&
    (version === undefined || SUPPORTED_PROTOCOL_VERSIONS.includes(String(version)))
  );
}

const jsonType = 'application/json';

function answerWithJson(message: JSONRPCMessage, { sessionId = '' }: Session['transport']): RawResponse {
  return new RawResponse({
    headers: { 'content-type': jsonType, 'mcp-session-id': sessionId },
    body: Buffer.from(JSON.stringify(message)),
  });
}

/**
 * Cancels the requests of a client that has disconnected and cannot resume their stream, as `notifications/cancelled`
 * does.
 */
function cancelRequests({ transport }: Session, body: unknown): void {
  for (const message of [body].flat() as { readonly id?: string | number }[])
    if (message.id !== undefined)
      transport.onmessage?.({
        jsonrpc: '2.0',
        method: 'notifications/cancelled',
        params: { requestId: message.id, reason: 'The client disconnected.' },
      });
}

const sessionNotFound = () => buildProtocolError(404, { code: -32001, message: 'Session not found' });

/** Returns the response of the original tool server to requests for which it has no stream. */
function methodNotAllowed(): RawResponse {
  const allow = ['DELETE', 'POST'];
  return new RawResponse({
    status: 405,
    headers: { allow: allow.join(', '), 'content-type': jsonType },
    body: Buffer.from(JSON.stringify({ error: 'Method Not Allowed', allow })),
  });
}

/** The API of the tool server for `buildServer`. */
export function toolsApi(config: Config, customAccess: CustomAccess): ApiProfile {
  const { toolsCorsOrigins } = config;
  return {
    title: 'Runlake tool server',
    description:
      'A server of the Model Context Protocol at `/mcp`. The API key is sent as `LANGSMITH-API-KEY`, `RUNLAKE-API-KEY`, `x-api-key` or ' +
      '`Authorization: Bearer`, the workspace as `LANGSMITH-WORKSPACE-ID`.',
    bodyLimit: { bytes: config.maxJsonBodyBytes, setting: 'the limit of messages' },
    customAccess,
    crossOrigin: {
      origins: toolsCorsOrigins === undefined ? loopbackOrigins : parseOrigins(toolsCorsOrigins),
      methods: ['GET', 'POST', 'DELETE'],
      headers: [
        'content-type',
        'accept',
        'mcp-session-id',
        'mcp-protocol-version',
        'last-event-id',
        ...credentialHeaders,
      ],
      exposedHeaders: ['mcp-session-id', 'x-request-id'],
      credentials: false,
      maxAgeSeconds: 600,
      settings: 'RUNLAKE_TOOLS_CORS_ORIGINS',
      refusesOthers: true,
    },
  };
}
