import type { AddressInfo } from 'node:net';
import { buildServer, type ServerOptions } from '../server/build-server.ts';
import { type ListenAddress, listenFault } from './check-port.ts';
import type { Ends } from './ends.ts';

/** Answers an API. At the end it refuses new requests and finishes those under way. @returns where it answers. @throws PORT_IN_USE, HOST_UNUSABLE */
export async function serveHttp(parts: {
  readonly server: ServerOptions;
  readonly at: ListenAddress;
  readonly ends: Ends;
}): Promise<string> {
  const server = await buildServer(parts.server);
  parts.ends.add('HTTP', () => server.drain());
  try {
    await server.listen({ host: parts.at.host, port: parts.at.port });
  } catch (error) {
    throw listenFault(error, parts.at);
  }
  const address = server.server.address() as AddressInfo;
  const name = address.family === 'IPv6' ? `[${address.address}]` : address.address;
  return `http://${name}:${address.port}`;
}
