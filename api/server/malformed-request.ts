import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { type RunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import { errorBody } from './error-answer.ts';

export interface ConnectionLimits {
  readonly maxHeaderBytes: number;
  readonly requestTimeoutMs: number;
}

/** Responds to a request that Node cannot parse as HTTP, directly on the socket, and closes it. */
export function rejectMalformedRequest(raw: NodeJS.ErrnoException, socket: Socket, limits: ConnectionLimits): void {
  if (raw.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const error = toConnectionError(raw, limits);
  const body = JSON.stringify(errorBody(error, 'detail', ''));
  const head = [
    `HTTP/1.1 ${error.status} ${STATUS_CODES[error.status]}`,
    'Content-Type: application/json; charset=utf-8',
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
