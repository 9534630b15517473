import { once } from 'node:events';
import { Agent, createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Settling } from './settling.ts';

/** An address in front of a server of tests; whatever comes there is handed on as it is, reads once everything is settled. */
export interface SettlingProxy {
  readonly url: string;
  /** Where requests go from now on. */
  leadTo(url: string): void;
  close(): Promise<void>;
}

export async function openSettlingProxy(settling: Settling): Promise<SettlingProxy> {
  // A connection for each request: one that was kept may lead to a server that has been killed meanwhile.
  const agent = new Agent({ keepAlive: false });
  let target = new URL('http://127.0.0.1:1');
  const proxy = createServer((incoming, outgoing) => {
    const { method = 'GET', url = '/', rawHeaders: headers } = incoming;
    const { hostname, port } = target;
    void settling.before(method, url).then(() => {
      const onward = request({ agent, hostname, port, method, path: url, headers, setHost: false }, (answer) => {
        settling.after(method, url);
        outgoing.writeHead(answer.statusCode ?? 500, answer.rawHeaders);
        answer.pipe(outgoing);
        answer.on('error', () => outgoing.destroy());
      });
      // A server that is gone looks to the client as if the proxy were.
      onward.on('error', () => {
        settling.after(method, url);
        outgoing.destroy();
      });
      incoming.on('error', () => onward.destroy());
      incoming.pipe(onward);
    });
  });
  // Clients read in the answers that they hand on how long the server keeps connections, which is longer than this one would.
  proxy.keepAliveTimeout = 0;
  proxy.listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  return {
    url: `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`,
    leadTo(url) {
      target = new URL(url);
    },
    async close() {
      agent.destroy();
      proxy.closeAllConnections();
      await new Promise((resolve) => proxy.close(resolve));
      await settling.close();
    },
  };
}
