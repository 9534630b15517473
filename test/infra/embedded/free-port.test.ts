import { once } from 'node:events';
import { createServer, type Server } from 'node:net';
import { expect, it } from 'vitest';
import { withFreePort } from '../../../infra/embedded/free-port.ts';

async function listen(port: number): Promise<Server> {
  const server = createServer().listen(port, '127.0.0.1');
  await once(server, 'listening');
  return server;
}

it('returns a port that is free to listen on', async () => {
  const server = await withFreePort(listen);
  server.close();
});

it('tries another port if another process took the first one', async () => {
  const otherServers: Server[] = [];
  const ports: number[] = [];
  const server = await withFreePort(async (port) => {
    ports.push(port);
    if (ports.length < 3) otherServers.push(await listen(port));
    return listen(port);
  });
  expect(new Set(ports).size).toBe(3);
  for (const open of [server, ...otherServers]) open.close();
});

it('does not retry a start that fails for another reason', async () => {
  let starts = 0;
  const start = withFreePort(() => {
    starts += 1;
    return Promise.reject(new Error('broken'));
  });
  await expect(start).rejects.toThrow('broken');
  expect(starts).toBe(1);
});
