import { createServer, type ServerResponse } from 'node:http';
import { onTestFinished } from 'vitest';
import { listenOnLoopback } from '../infra/listen-on-loopback.ts';

/**
 * Blocks graphs until a test opens the gate: a graph sends a request to `url`, and gets the response when the gate is
 * open. The gate is opened at the end of the test.
 */
export class Gate {
  readonly url: string;
  readonly #waiting = new Set<ServerResponse>();
  #isOpen = false;

  private constructor(url: string) {
    this.url = url;
  }

  static async closed(): Promise<Gate> {
    const server = createServer((_request, response) => gate.#ask(response));
    const port = await listenOnLoopback(server);
    const gate = new Gate(`http://127.0.0.1:${port}`);
    onTestFinished(() => {
      gate.open();
      server.close();
    });
    return gate;
  }

  /** Responds to waiting and to later requests. */
  open(): void {
    this.#isOpen = true;
    for (const response of this.#waiting) response.end();
    this.#waiting.clear();
  }

  #ask(response: ServerResponse): void {
    if (this.#isOpen) response.end();
    else this.#waiting.add(response);
  }
}
