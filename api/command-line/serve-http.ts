import type { AddressInfo } from 'node:net';
import { buildServer, type ServerOptions } from '../server/build-server.ts';
import { type ListenAddress, listenError } from './check-port.ts';
import type { Ends } from './ends.ts';

export interface HttpListener {
  readonly url: string;
  /** Refuses new requests, finishes in-flight requests and closes. */
  drain(): Promise<void>;
}

/** Starts the server of an API. @throws PORT_IN_USE, HOST_UNUSABLE */
export async function listenHttp(parts: {
  readonly server: ServerOptions;
  readonly at: ListenAddress;
}): Promise<HttpListener> {
  const server = await buildServer(parts.server);
  try {
    await server.listen({ host: parts.at.host, port: parts.at.port });
  } catch (error) {
    await server.close();
    throw listenError(error, parts.at);
  }
  const address = server.server.address() as AddressInfo;
  const name = address.family === 'IPv6' ? `[${address.address}]` : address.address;
  return { url: `http://${name}:${address.port}`, drain: async () => void (await server.drain()) };
}

/**
 * Like {@link listenHttp}, and drains the server at shutdown. @returns the URL of the server. @throws PORT_IN_USE,
 * HOST_UNUSABLE
 */
export async function serveHttp(parts: Parameters<typeof listenHttp>[0] & { readonly ends: Ends }): Promise<string> {
  const { url, drain } = await listenHttp(parts);
  parts.ends.add('HTTP', drain);
  return url;
}
