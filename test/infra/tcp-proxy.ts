import { once } from 'node:events';
import net from 'node:net';
import { listenOnLoopback } from './listen-on-loopback.ts';

export interface TcpProxy {
  readonly port: number;
  /** Returns the bytes that clients have sent so far. */
  sent(): Buffer;
  /** Returns the number of client connections so far. */
  connections(): number;
  /** Closes all open connections. New connections are still accepted and forwarded. */
  breakAll(): void;
  /** Breaks all connections in both directions after this many further bytes from clients. */
  breakAfter(bytes: number): void;
  /** Accepts connections but forwards nothing, until it is called with false. */
  freeze(frozen: boolean): void;
  /**
   * Drops the next response to a client that sent `text`, and closes that client's connection; the connection to the
   * server stays open.
   */
  dropResponseTo(text: string): void;
  close(): Promise<void>;
}

/** Opens a proxy between a client and a real server that records client bytes and can break connections. */
export async function openTcpProxy(host: string, port: number): Promise<TcpProxy> {
  const chunks: Buffer[] = [];
  const sockets = new Set<net.Socket>();
  let left = Number.POSITIVE_INFINITY;
  let frozen = false;
  let lostResponseText: string | undefined;
  let connections = 0;
  const server = net.createServer((client) => {
    const upstream = net.connect(port, host);
    connections++;
    let dropsResponses = false;
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on('error', () => undefined);
      socket.on('close', () => {
        sockets.delete(socket);
        client.destroy();
        if (!dropsResponses) upstream.destroy();
      });
    }
    upstream.on('data', (data) => {
      if (dropsResponses) client.destroy();
      else client.write(data);
    });
    client.on('data', (data) => {
      chunks.push(data);
      if (lostResponseText !== undefined && data.includes(lostResponseText)) {
        lostResponseText = undefined;
        dropsResponses = true;
      }
      if (frozen) return;
      const part = data.subarray(0, left);
      left -= part.length;
      upstream.write(part, () => {
        if (left > 0) return;
        client.destroy();
        upstream.destroy();
      });
    });
  });
  return {
    port: await listenOnLoopback(server),
    sent: () => Buffer.concat(chunks),
    connections: () => connections,
    breakAll: () => {
      for (const socket of sockets) socket.destroy();
    },
    breakAfter: (bytes) => {
      left = bytes;
    },
    freeze: (on) => {
      frozen = on;
    },
    dropResponseTo: (text) => {
      lostResponseText = text;
    },
    close: async () => {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}
