import { once } from 'node:events';
import { createServer } from 'node:net';

const loopback = '127.0.0.1';
const attempts = 5;

/**
 * Runs `start` with a loopback port that was free a moment ago, and again with another one where a stranger took the
 * port in between.
 *
 * @throws what `start` throws, where the port was not the cause.
 */
export async function onFreePort<T>(start: (port: number) => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    const port = await freePort();
    try {
      return await start(port);
    } catch (error) {
      if (attempt === attempts || !(await isPortTaken(port))) throw error;
    }
  }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, loopback);
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  return typeof address === 'object' && address ? address.port : freePort();
}

/** Asked after a failed start only: it tells a taken port from every other cause without reading messages. */
async function isPortTaken(port: number): Promise<boolean> {
  const server = createServer().listen(port, loopback);
  try {
    await once(server, 'listening');
  } catch {
    return true;
  }
  server.close();
  return false;
}
