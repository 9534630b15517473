import { createServer } from 'node:http';
import { listenOnLoopback } from '../infra/listen-on-loopback.ts';

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
  const port = await listenOnLoopback(server);
  return {
    url: `http://127.0.0.1:${port}`,
    open,
    close() {
      server.closeAllConnections();
      server.close();
    },
  };
}
