import { Agent, createServer, request } from 'node:http';
import { listenOnLoopback } from '../infra/listen-on-loopback.ts';
import type { Settling } from './settling.ts';

/**
 * A proxy in front of a Runlake under test: it forwards requests unchanged, but reads only after all sinks have caught
 * up.
 */
export interface SettlingProxy {
  readonly url: string;
  /** Sets the target of later requests. */
  leadTo(url: string): void;
  close(): Promise<void>;
}

export async function openSettlingProxy(settling: Settling): Promise<SettlingProxy> {
  // One connection for each request: a kept-alive connection may lead to a server that has been killed in the meantime.
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
      // If the server is down, the client sees a broken connection.
      onward.on('error', () => {
        settling.after(method, url);
        outgoing.destroy();
      });
      incoming.on('error', () => onward.destroy());
      incoming.pipe(onward);
    });
  });
  // Clients read the server's own keep-alive timeout from its responses; the proxy must not close connections earlier.
  proxy.keepAliveTimeout = 0;
  const port = await listenOnLoopback(proxy);
  return {
    url: `http://127.0.0.1:${port}`,
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
