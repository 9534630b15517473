import { createServer, type RequestListener } from 'node:http';
import { afterEach, expect, it } from 'vitest';
import { respondsOk } from '../../../pipelines/deployments/responds-ok.ts';
import { listenOnLoopback } from '../../infra/listen-on-loopback.ts';

const closers: (() => unknown)[] = [];
afterEach(() => {
  for (const close of closers.splice(0)) close();
});

async function serve(listener: RequestListener): Promise<string> {
  const server = createServer(listener);
  closers.push(() => server.close());
  return `http://127.0.0.1:${await listenOnLoopback(server)}`;
}

it('does not follow redirects, which an image could direct to any address of the network', async () => {
  const requests: string[] = [];
  const other = await serve(({ url }, response) => {
    requests.push(String(url));
    response.end();
  });
  const replica = await serve((_, response) => response.writeHead(302, { location: `${other}/internal` }).end());
  expect(await respondsOk(replica, AbortSignal.timeout(10_000))).toBe(false);
  expect(requests).toEqual([]);
  expect(await respondsOk(other, AbortSignal.timeout(10_000))).toBe(true);
  expect(requests).toEqual(['/ok']);
});
