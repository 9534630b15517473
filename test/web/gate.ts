import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

/** A server at which graph code waits, so that a test does not depend on how long a run takes. */
export interface Gate {
  readonly url: string;
  /** Responds to the waiting requests and to all later ones. */
  open(): void;
  close(): void;
}

export async function startGate(): Promise<Gate> {
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  const server = createServer((_, response) => void opened.then(() => response.end()));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    open,
    close() {
      server.closeAllConnections();
      server.close();
    },
  };
}
