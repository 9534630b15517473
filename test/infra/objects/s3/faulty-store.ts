import { once } from 'node:events';
import { Agent, createServer, type IncomingMessage, request } from 'node:http';
import { listenOnLoopback } from '../../listen-on-loopback.ts';

/** Error response to a request; undefined forwards the request to the store. */
export type ErrorResponse = { readonly status: number; readonly code: string } | undefined;

export interface FaultyStore {
  readonly endpoint: string;
  /** Methods and paths of all requests so far. */
  readonly seen: readonly string[];
  close(): Promise<void>;
}

/**
 * Opens a proxy in front of a real store. The proxy sends the response of `decide` if there is one.
 *
 * @param answered is called when the store has responded to a request; the response is forwarded when the promise of
 *   `answered` resolves.
 */
export async function openFaultyStore(
  store: string,
  decide: (request: IncomingMessage, count: number) => ErrorResponse | Promise<ErrorResponse>,
  answered: (request: IncomingMessage) => Promise<void> = async () => undefined,
): Promise<FaultyStore> {
  const { hostname, port } = new URL(store);
  const agent = new Agent({ keepAlive: true });
  const seen: string[] = [];
  const server = createServer(async (incoming, outgoing) => {
    const { method, url, rawHeaders: headers } = incoming;
    seen.push(`${method} ${url}`);
    const errorResponse = await decide(incoming, seen.length);
    if (outgoing.destroyed) return;
    if (errorResponse !== undefined) {
      incoming.resume().once('end', () => {
        outgoing.writeHead(errorResponse.status, { 'content-type': 'application/xml', 'x-amz-request-id': 'faulty' });
        outgoing.end(
          method === 'HEAD' ? undefined : `<?xml version="1.0"?><Error><Code>${errorResponse.code}</Code></Error>`,
        );
      });
      return;
    }
    // Keeps the Host header, because the client signed it.
    const onward = request({ agent, hostname, port, method, path: url, headers, setHost: false }, async (answer) => {
      answer.on('error', () => outgoing.destroy());
      await answered(incoming);
      outgoing.writeHead(answer.statusCode ?? 500, answer.rawHeaders);
      answer.pipe(outgoing);
    });
    onward.on('error', () => outgoing.destroy());
    incoming.on('error', () => onward.destroy());
    incoming.pipe(onward);
  });
  return {
    endpoint: `http://127.0.0.1:${await listenOnLoopback(server)}`,
    seen,
    async close() {
      agent.destroy();
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}
