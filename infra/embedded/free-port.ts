import { once } from 'node:events';
import { createServer, type Server } from 'node:net';

const loopback = '127.0.0.1';
const maxAttempts = 5;

/**
 * Runs `start` with a free loopback port. Retries with another port if a different program has taken the port in the
 * meantime.
 *
 * @throws the error of `start` if the port is not the cause.
 */
export function withFreePort<T>(start: (port: number) => Promise<T>): Promise<T> {
  return withFreePorts(1, ([port = 0]) => start(port));
}

/** Like {@link withFreePort}, for a server that needs `count` different ports. */
export async function withFreePorts<T>(count: number, start: (ports: readonly number[]) => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    const ports = await findFreePorts(count);
    try {
      return await start(ports);
    } catch (error) {
      const portsInUse = await Promise.all(ports.map(isPortInUse));
      if (attempt === maxAttempts || !portsInUse.includes(true)) throw error;
    }
  }
}

/**
 * Returns a function that starts a server and always uses the same port: `given`, or the free port of the first
 * successful start.
 */
export function createFixedPortLauncher<T>(given: number | undefined, start: (port: number) => Promise<T>) {
  let port = given;
  return {
    launch: (): Promise<T> =>
      port !== undefined
        ? start(port)
        : withFreePort(async (freePort) => {
            const started = await start(freePort);
            port = freePort;
            return started;
          }),
    get port() {
      return port;
    },
  };
}

/** Returns free ports. Keeps each port open until the last port is found, so that all ports are different. */
export async function findFreePorts(count: number): Promise<number[]> {
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

/** Returns true if the port is taken. Called after a failed start, instead of parsing error messages. */
export async function isPortInUse(port: number): Promise<boolean> {
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
