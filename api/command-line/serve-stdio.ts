/**
 * `runlake tools --stdio`: serves the tools to one client over standard input and output, for clients that start a command.
 * It uses no store: the tools ask the main API over HTTP, with the key of the client. Standard output carries the messages
 * of the protocol; the log goes to standard error, as always.
 */
import { EventEmitter, once } from 'node:events';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { ErrorCode, type JSONRPCMessage } from '@modelcontextprotocol/sdk/types.js';
import { loadConfig } from '../../infra/config/load.ts';
import { readToolEnvironment } from '../../infra/config/tool-credentials.ts';
import { isRunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import { createLogger, type Logger } from '../../infra/telemetry/logger.ts';
import { readTrustedAuthorities } from '../../infra/tls/trusted-authorities.ts';
import { acceptsKey, normaliseEndpoint, openEndpoints } from '../tools/endpoints.ts';
import type { SendToMainApi, ToolCredentials } from '../tools/main-api.ts';
import { createToolServers } from '../tools/tool-server.ts';
import { mainApiUrl } from './check-port.ts';

const keyTimeoutMs = 5_000;

/**
 * Resolves when the client has closed standard input and the requests before it are answered, or after a signal.
 *
 * @throws INVALID_CONFIG, TOOLS_STDIO_KEY_INVALID
 */
export async function serveToolsOverStdio(): Promise<void> {
  const { config } = loadConfig();
  const { key, workspace, endpoint: named = mainApiUrl(config, config.port) } = readToolEnvironment();
  const endpoint = normaliseEndpoint(named);
  if (endpoint === undefined) {
    const errors = `  - LANGSMITH_ENDPOINT='${named}' must be an http or https URL.`;
    throw runlakeError('INVALID_CONFIG', { count: 1, errors });
  }
  // The user of this command chose the endpoint, so private addresses are allowed.
  const endpoints = openEndpoints({
    allowPrivate: true,
    maxResponseBytes: config.maxPageBytes,
    authorities: readTrustedAuthorities(config),
  });
  const credentials = { key, workspace };
  const send = endpoints.sendTo(endpoint);
  await checkKey(send, credentials, endpoint);
  const logger = createLogger(config.logLevel, 'tools');
  const server = createToolServers({ config, logger })({ keyId: 'stdio', credentials, send, endpoint });
  const transport = new StdioServerTransport();
  const stopped = ['SIGTERM', 'SIGINT'].map((signal) => once(process, signal));
  const ended = Promise.race([once(process.stdin, 'end'), once(process.stdin, 'close')]);
  const outputClosed = new Promise((resolve) => process.stdout.on('error', resolve));
  await server.connect(transport);
  const answered = trackAnswers(transport);
  const closed = handleUnreadable(transport, logger).then(() => 'closed');
  const end = await Promise.race([ended.then(answered), outputClosed, closed, ...stopped]);
  if (end === 'closed') process.exitCode = 1;
  await server.close();
  endpoints.close();
  process.stdin.destroy();
}

/**
 * Answers and logs messages that cannot be read. Resolves when the transport is closed; it closes itself if a message is
 * too large. The transport is connected.
 */
function handleUnreadable(transport: StdioServerTransport, logger: Pick<Logger, 'warn'>): Promise<void> {
  transport.onerror = (err) => {
    logger.warn({ err }, 'cannot read a message on standard input');
    const error =
      err instanceof SyntaxError
        ? { code: ErrorCode.ParseError, message: 'The message is not valid JSON.' }
        : { code: ErrorCode.InvalidRequest, message: 'The message is not a message of JSON-RPC 2.0.' };
    // JSON-RPC 2.0, section 5: the id is null if it cannot be read. The package has no type for it.
    const answer = { jsonrpc: '2.0', id: null, error } as unknown as JSONRPCMessage;
    if (err instanceof SyntaxError || err.name === 'ZodError') void transport.send(answer);
  };
  return new Promise((resolve) => {
    const close = transport.onclose;
    transport.onclose = () => {
      close?.();
      resolve();
    };
  });
}

/** Returns a function that waits until every request so far is answered or cancelled. The transport is connected. */
function trackAnswers(transport: Transport): () => Promise<void> {
  const open = new Set<unknown>();
  const closings = new EventEmitter();
  const close = (id: unknown) => {
    open.delete(id);
    closings.emit('closed');
  };
  const receive = transport.onmessage;
  transport.onmessage = (message, extra) => {
    if ('method' in message && 'id' in message) open.add(message.id);
    receive?.(message, extra);
    if ('method' in message && message.method === 'notifications/cancelled') close(message.params?.requestId);
  };
  const send = transport.send.bind(transport);
  transport.send = async (message, options) => {
    await send(message, options);
    if (!('method' in message)) close(message.id);
  };
  return async () => {
    while (open.size > 0) await once(closings, 'closed');
  };
}

/** An endpoint that does not answer yet is not an error: the client may start before it. */
async function checkKey(send: SendToMainApi, credentials: ToolCredentials, endpoint: string): Promise<void> {
  const signal = AbortSignal.timeout(keyTimeoutMs);
  const accepted = await acceptsKey(send, credentials, { endpoint, signal }).catch((error: unknown) => {
    if (isRunlakeError(error) && error.code === 'TOOLS_ENDPOINT_UNAVAILABLE') return true;
    return (error as Error).name === 'TimeoutError' || Promise.reject(error);
  });
  if (!accepted)
    throw runlakeError('TOOLS_STDIO_KEY_INVALID', {
      reason: `${endpoint} does not accept the key in LANGSMITH_API_KEY.`,
    });
}
