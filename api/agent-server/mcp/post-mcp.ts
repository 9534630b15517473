/**
 * One request of the Model Context Protocol.
 *
 * Invariant: nothing outlives its request, and a call whose client disconnects is cancelled.
 *
 *   1. The operation creates a server and a transport of the official package for this request only.
 *   2. A response that is ready within one turn of the event loop (errors, notifications) is sent with its status.
 *   3. Any other response has status 200: line feeds keep the connection open until the JSON is ready.
 *   4. When the body ends for any reason, the server closes, which aborts its calls.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { WebStandardStreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/webStandardStreamableHttp.js';
import { CallToolRequestSchema, ErrorCode, ListToolsRequestSchema, McpError } from '@modelcontextprotocol/sdk/types.js';
import { Type } from 'typebox';
import { isRunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import { Answer } from '../../server/operation.ts';
import { releaseVersion } from '../../server/release.ts';
import { defineAgentOperation, runs } from '../agent-operation.ts';
import { JsonValue } from '../agent-schema.ts';
import { noRoute, requireProtocol } from '../require-protocol.ts';
import { liveBody } from '../streaming/live-body.ts';
import { callTool, listTools, type McpInput } from './tools.ts';

export const postMcp = defineAgentOperation({
  operationId: 'postMcp',
  method: 'POST',
  path: '/mcp',
  tag: 'mcp',
  summary: 'Use assistants as tools (Model Context Protocol)',
  description:
    'Streamable HTTP without sessions: initialize, ping, tools/list and tools/call, with JSON responses. Each assistant is a tool. A call is a run without a thread; closing the connection cancels it.',
  access: runs,
  errors: ['ROUTE_NOT_FOUND'],
  schema: {
    body: JsonValue({ description: 'A JSON-RPC 2.0 message, or a list of messages.' }),
    response: {
      200: JsonValue({ description: 'A JSON-RPC 2.0 response.' }),
      202: Type.Null(),
      406: JsonValue({
        description: 'A JSON-RPC error: the header Accept must include both application/json and text/event-stream.',
      }),
    },
  },
  handler: async (input) => {
    const { request, services, body } = input;
    requireProtocol(services.agents, 'mcp', request);
    const server = serverFor(input);
    const transport = new WebStandardStreamableHTTPServerTransport({ enableJsonResponse: true });
    await server.connect(transport as Parameters<Server['connect']>[0]);
    const answering = transport.handleRequest(webRequest(input), { parsedBody: body ?? null });
    const quick = await Promise.race([answering, nextTurn()]);
    if (quick !== undefined) {
      await server.close();
      return buildResponse(quick);
    }
    return new Answer({
      headers: { 'content-type': 'application/json' },
      body: liveBody<string>({
        source: {
          async *[Symbol.asyncIterator]() {
            yield await (await answering).text();
          },
          close: () => void server.close(),
        },
        encode: (text) => [text],
        heartbeat: '\n',
        heartbeatMs: services.agents.config.agentsHeartbeatMs,
        failed: errorText,
        stopping: request.server.drainStarted,
        accessEnded: request.access?.ended,
        stopped: () => errorText(runlakeError('DRAINING')),
      }),
    });
  },
});

function serverFor(input: McpInput): Server {
  const server = new Server({ name: 'runlake', version: releaseVersion }, { capabilities: { tools: {} } });
  server.setRequestHandler(ListToolsRequestSchema, ({ params }) =>
    withMcpErrors(input, listTools(input, params?.cursor)),
  );
  server.setRequestHandler(CallToolRequestSchema, ({ params }, { signal }) =>
    withMcpErrors(input, callTool(input, params, signal)),
  );
  return server;
}

/** Converts errors to protocol errors; errors that the client did not cause are logged. */
async function withMcpErrors<T>({ request }: McpInput, result: Promise<T>): Promise<T> {
  try {
    return await result;
  } catch (err) {
    if (err instanceof McpError) throw err;
    if (isRunlakeError(err) && err.class === 'caller') throw new McpError(ErrorCode.InvalidRequest, err.message);
    request.log.warn({ err }, 'Model Context Protocol request failed');
    throw new McpError(ErrorCode.InternalError, clientMessage(err));
  }
}

/** The transport validates only headers; the body is already parsed. */
function webRequest({ request }: McpInput): Request {
  const headers = new Headers();
  for (const name of ['accept', 'content-type', 'mcp-protocol-version']) {
    const value = request.headers[name];
    if (typeof value === 'string') headers.set(name, value);
  }
  return new Request('http://runlake/mcp', { method: 'POST', headers });
}

async function buildResponse(response: Response): Promise<Answer> {
  const contentType = response.headers.get('content-type');
  return new Answer({
    status: response.status,
    ...(contentType !== null && { headers: { 'content-type': contentType } }),
    ...(response.body !== null && { body: Buffer.from(await response.arrayBuffer()) }),
  });
}

function errorText(error: unknown): Buffer {
  const answer = { jsonrpc: '2.0', id: null, error: { code: ErrorCode.InternalError, message: clientMessage(error) } };
  return Buffer.from(JSON.stringify(answer));
}

function clientMessage(error: unknown): string {
  return (isRunlakeError(error) ? error : runlakeError('INTERNAL')).message;
}

export const deleteMcp = defineAgentOperation({
  operationId: 'deleteMcp',
  method: 'DELETE',
  path: '/mcp',
  tag: 'mcp',
  summary: 'End a session of the Model Context Protocol',
  description: 'Always 404: the server has no sessions.',
  access: runs,
  errors: ['ROUTE_NOT_FOUND'],
  schema: { response: { 404: Type.Object({ detail: Type.String() }) } },
  handler: async ({ request }) => {
    throw noRoute(request);
  },
});
