import { once } from 'node:events';
import { createServer, type Server } from 'node:net';

const loopback = '127.0.0.1';
const attempts = 5;

/**
 * Runs `start` with a loopback port that was free a moment ago, and again with another one where a stranger took the
 * port in between.
 *
 * @throws what `start` throws, where the port was not the cause.
 */
export function onFreePort<T>(start: (port: number) => Promise<T>): Promise<T> {
  return onFreePorts(1, ([port = 0]) => start(port));
}

/** The same for a server that needs `count` ports, all different. */
export async function onFreePorts<T>(count: number, start: (ports: readonly number[]) => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    const ports = await freePorts(count);
    try {
      return await start(ports);
    } catch (error) {
      const taken = await Promise.all(ports.map(isPortTaken));
      if (attempt === attempts || !taken.includes(true)) throw error;
    }
  }
}

/** All are held until the last one is found, so that no two are the same. */
export async function freePorts(count: number): Promise<number[]> {
  const servers: Server[] = [];
  const ports: number[] = [];
  for (let index = 0; index < count; index += 1) {
    const server = createServer().listen(0, loopback);
    servers.push(server);
    await once(server, 'listening');
    const address = server.address();
    if (typeof address === 'object' && address) ports.push(address.port);
  }
  await Promise.all(servers.map((server) => once(server.close(), 'close')));
  return ports;
}

/** After a failed start it tells a taken port from every other cause without reading messages. */
export async function isPortTaken(port: number): Promise<boolean> {
  const server = createServer().listen(port, loopback);
  try {
    await once(server, 'listening');
  } catch {
    return true;
  }
  server.close();
  await once(server, 'close');
  return false;
}
