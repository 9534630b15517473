import type { AddressInfo } from 'node:net';
import type { FastifyInstance } from 'fastify';
import { formatHost } from '../../infra/network/format-host.ts';
import { buildServer, type ServerOptions } from '../server/build-server.ts';
import { createListenError, type ListenAddress } from './check-port.ts';

interface HttpListener {
  readonly url: string;
  readonly server: FastifyInstance;
  /** Refuses new requests, finishes in-flight requests and closes. */
  drain(): Promise<void>;
}

/** Starts the HTTP server of an API. @throws PORT_IN_USE, HOST_UNUSABLE */
export async function listenHttp({
  server: options,
  at,
}: {
  readonly server: ServerOptions;
  readonly at: ListenAddress;
}): Promise<HttpListener> {
  const server = await buildServer(options);
  try {
    await server.listen({ host: at.host, port: at.port });
  } catch (error) {
    await server.close();
    throw createListenError(error, at);
  }
  const { address, port } = server.server.address() as AddressInfo;
  return { url: `http://${formatHost(address, port)}`, server, drain: async () => void (await server.drain()) };
}
