import type { AddressInfo } from 'node:net';
import type { FastifyInstance } from 'fastify';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { operations } from '../main/operations.ts';
import { buildServer } from '../server/build-server.ts';
import type { Services } from '../server/services.ts';
import { listenFault } from './check-port.ts';
import type { Ends } from './ends.ts';

/** Answers the main API. At the end it refuses new requests and finishes those under way. @returns where it answers. @throws PORT_IN_USE, HOST_UNUSABLE */
export async function serveHttp(services: Services, logger: Logger, ends: Ends): Promise<string> {
  const { config } = services;
  const server = await buildServer({ config, services, logger, operations });
  ends.add('HTTP', () => server.drain());
  return listen(server, config);
}

async function listen(
  server: FastifyInstance,
  { host, port }: { readonly host: string; readonly port: number },
): Promise<string> {
  try {
    await server.listen({ host, port });
  } catch (error) {
    throw listenFault(error, { host, port });
  }
  const address = server.server.address() as AddressInfo;
  const name = address.family === 'IPv6' ? `[${address.address}]` : address.address;
  return `http://${name}:${address.port}`;
}
