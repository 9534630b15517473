/**
 * The limit on the time in which a request with a body is received. It replaces that of Node, which no request can be
 * exempted from.
 */
import type { IncomingMessage, Server } from 'node:http';

const timers = new WeakMap<IncomingMessage, NodeJS.Timeout>();

/** Ends requests that have not been received after `limitMs`, as Node does: with the event `clientError`. */
export function limitRequestTime(server: Server, limitMs: number): void {
  // Before the listener of the framework, which may call the handler at once.
  server.prependListener('request', (message: IncomingMessage) => {
    const { headers } = message;
    if (headers['content-length'] === undefined && headers['transfer-encoding'] === undefined) return;
    const timer = setTimeout(() => {
      if (message.complete) return;
      const error = Object.assign(new Error('Request timeout'), { code: 'ERR_HTTP_REQUEST_TIMEOUT' });
      server.emit('clientError', error, message.socket);
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
