import { once } from 'node:events';
import net from 'node:net';
import { TLSSocket } from 'node:tls';
import { listenOnLoopback } from '../listen-on-loopback.ts';
import { serverCertificate } from './certificates.ts';

export interface TlsProxy {
  readonly port: number;
  close(): Promise<void>;
}

export interface TlsProxyOptions {
  readonly host: string;
  readonly port: number;
  readonly certificate?: 'server' | 'elsewhere';
  /**
   * Expects an SSLRequest: a Postgres client sends these eight bytes before TLS, and the server responds with one
   * letter.
   */
  readonly asPostgres?: boolean;
}

/** Opens a proxy that terminates TLS in front of a real server without TLS. */
export async function openTlsProxy({
  host,
  port,
  certificate,
  asPostgres = false,
}: TlsProxyOptions): Promise<TlsProxy> {
  const sockets = new Set<net.Socket>();
  const keep = (socket: net.Socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.on('close', () => sockets.delete(socket));
  };
  const server = net.createServer((raw) => {
    keep(raw);
    const secure = () => {
      const client = new TLSSocket(raw, { isServer: true, ...serverCertificate(certificate) });
      const upstream = net.connect(port, host);
      keep(client);
      keep(upstream);
      client.pipe(upstream).pipe(client);
      client.on('close', () => upstream.destroy());
      upstream.on('close', () => client.destroy());
    };
    if (asPostgres) {
      raw.once('readable', () => {
        raw.read(8);
        raw.write('S');
        secure();
      });
    } else secure();
  });
  return {
    port: await listenOnLoopback(server),
    close: async () => {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}
