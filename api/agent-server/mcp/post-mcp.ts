/**
 * One request of the Model Context Protocol.
 *
 * Invariant: nothing outlives the request that it came with, and a call whose client has gone is stopped.
 *
 *   1. A server and a transport of the official package are made for this request alone.
 *   2. What is refused or has no answer is answered within one turn of the event loop, with its status.
 *   3. Anything else is answered with 200: line feeds keep the connection open until the JSON is there.
 *   4. When the body ends, in whatever way, the calls under way are told.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { WebStandardStreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/webStandardStreamableHttp.js';
import { CallToolRequestSchema, ErrorCode, ListToolsRequestSchema, McpError } from '@modelcontextprotocol/sdk/types.js';
import { Type } from 'typebox';
import { fault, isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import { Answer } from '../../server/operation.ts';
import { releaseVersion } from '../../server/release.ts';
import { defineAgentOperation, runs } from '../agent-operation.ts';
import { JsonValue } from '../agent-schema.ts';
import { requireProtocol } from '../require-protocol.ts';
import { liveBody } from '../streaming/live-body.ts';
import { callTool, type McpInput } from './call-tool.ts';
import { listTools } from './list-tools.ts';

export const postMcp = defineAgentOperation({
  operationId: 'postMcp',
  method: 'POST',
  path: '/mcp',
  tag: 'mcp',
  summary: 'Use assistants as tools, by the Model Context Protocol',
  description:
    'Streamable HTTP without sessions: initialize, ping, tools/list and tools/call, answered with JSON. Each assistant is a tool; a call is a run without a thread that is waited for, and closing the connection cancels it.',
  access: runs,
  errors: ['ROUTE_NOT_FOUND'],
  schema: {
    body: JsonValue({ description: 'A message of JSON-RPC 2.0, or a list of them.' }),
    response: {
      200: JsonValue({ description: 'The answer.' }),
      202: Type.Null(),
      406: JsonValue({
        description: 'A JSON-RPC error: the header Accept lists not both application/json and text/event-stream.',
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
      return answerOf(quick);
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
        stopped: () => errorText(fault('DRAINING')),
      }),
    });
  },
});

function serverFor(input: McpInput): Server {
  const server = new Server({ name: 'runlake', version: releaseVersion }, { capabilities: { tools: {} } });
  server.setRequestHandler(ListToolsRequestSchema, ({ params }) => told(input, listTools(input, params?.cursor)));
  server.setRequestHandler(CallToolRequestSchema, ({ params }, { signal }) =>
    told(input, callTool(input, params, signal)),
  );
  return server;
}

/** What failed, as a client may see it. */
async function told<T>({ request }: McpInput, result: Promise<T>): Promise<T> {
  try {
    return await result;
  } catch (err) {
    if (err instanceof McpError) throw err;
    if (isRunlakeError(err) && err.class === 'caller') throw new McpError(ErrorCode.InvalidRequest, err.message);
    request.log.warn({ err }, 'a request of the Model Context Protocol failed');
    throw new McpError(ErrorCode.InternalError, messageOf(err));
  }
}

/** The headers decide what is refused; the body was read before. */
function webRequest({ request }: McpInput): Request {
  const headers = new Headers();
  for (const name of ['accept', 'content-type', 'mcp-protocol-version']) {
    const value = request.headers[name];
    if (typeof value === 'string') headers.set(name, value);
  }
  return new Request('http://runlake/mcp', { method: 'POST', headers });
}

async function answerOf(response: Response): Promise<Answer> {
  const contentType = response.headers.get('content-type');
  return new Answer({
    status: response.status,
    ...(contentType !== null && { headers: { 'content-type': contentType } }),
    ...(response.body !== null && { body: Buffer.from(await response.arrayBuffer()) }),
  });
}

function errorText(error: unknown): Buffer {
  const answer = { jsonrpc: '2.0', id: null, error: { code: ErrorCode.InternalError, message: messageOf(error) } };
  return Buffer.from(JSON.stringify(answer));
}

function messageOf(error: unknown): string {
  return (isRunlakeError(error) ? error : fault('INTERNAL')).message;
}
