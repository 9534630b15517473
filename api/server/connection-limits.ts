/** Requests that the framework does not answer: those that are not valid HTTP, and those that arrive too slowly. */
import { type IncomingMessage, type Server, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { type RunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import { buildErrorBody } from './error-response.ts';
import { jsonMediaType } from './formats.ts';

export interface ConnectionLimits {
  readonly maxHeaderBytes: number;
  readonly requestTimeoutMs: number;
}

/** Responds directly on the socket to a request that Node cannot parse as HTTP, and closes the socket. */
export function rejectMalformedRequest(raw: NodeJS.ErrnoException, socket: Socket, limits: ConnectionLimits): void {
  if (raw.code === 'ECONNRESET') socket.destroy();
  else rejectConnection(socket, toConnectionError(raw, limits));
}

function rejectConnection(socket: Socket, error: RunlakeError): void {
  if (!socket.writable) {
    socket.destroy();
    return;
  }
  const body = JSON.stringify(buildErrorBody(error, 'detail', ''));
  const head = [
    `HTTP/1.1 ${error.status} ${STATUS_CODES[error.status]}`,
    `Content-Type: ${jsonMediaType}`,
    'X-Content-Type-Options: nosniff',
    `Content-Length: ${Buffer.byteLength(body)}`,
    'Connection: close',
  ];
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`);
}

function toConnectionError(raw: NodeJS.ErrnoException, limits: ConnectionLimits): RunlakeError {
  switch (raw.code) {
    case 'HPE_HEADER_OVERFLOW':
      return runlakeError('HEADERS_TOO_LARGE', { limitBytes: limits.maxHeaderBytes });
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return runlakeError('REQUEST_TIMEOUT', { limitMs: limits.requestTimeoutMs });
    default:
      return runlakeError('BAD_REQUEST', { reason: 'The request is not valid HTTP.' }, { cause: raw });
  }
}

const timers = new WeakMap<IncomingMessage, NodeJS.Timeout>();

/**
 * Limits the time in which a request with a body is received. It replaces the limit of Node, which no request can be
 * exempted from.
 */
export function limitRequestTime(server: Server, { requestTimeoutMs: limitMs }: ConnectionLimits): void {
  // Before the listener of the framework, which may call the handler at once.
  server.prependListener('request', (message: IncomingMessage) => {
    const { headers } = message;
    if (headers['content-length'] === undefined && headers['transfer-encoding'] === undefined) return;
    const timer = setTimeout(() => {
      if (!message.complete) rejectConnection(message.socket, runlakeError('REQUEST_TIMEOUT', { limitMs }));
    }, limitMs);
    timer.unref();
    timers.set(message, timer);
    message.once('close', () => clearTimeout(timer));
  });
}

/** Removes the limit from a request whose handler limits how slowly the body arrives. */
export function removeRequestTimeLimit(message: IncomingMessage): void {
  clearTimeout(timers.get(message));
}
