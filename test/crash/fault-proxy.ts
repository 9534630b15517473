/**
 * A TCP proxy in front of one server, for tests: it can stall, break connections, and block a request at a recognised
 * step.
 *
 * Invariant: bytes are forwarded in order and unchanged; a blocked request blocks only its own connection; a stall
 * loses nothing: bytes in flight arrive late.
 *
 *   1. Client and server are joined by a pair of sockets; bytes are divided into messages if the protocol defines them
 *      (Kafka), otherwise each chunk is a message.
 *   2. The first message that a gate recognises uses it up. The gate determines how far the message gets: nothing of
 *      it, half of it, all of it without a response, or all of it with the response blocked. Nothing further passes on
 *      that connection.
 *   3. A stall pauses reading on both sides, on new connections too; when it ends, everything continues.
 *   4. Away: connections are broken and new ones are refused, as if the server were down.
 */
import { once } from 'node:events';
import net from 'node:net';
import { type Protocol, plain } from './protocol.ts';

/**
 * How far a recognised request gets: not sent; half sent; sent, the response dropped; answered, the response dropped.
 */
export type GateAt = 'before' | 'half' | 'sent' | 'answered';

export interface FaultProxy {
  readonly port: number;
  /** Resolves when a request was recognised and is blocked at `at`. Later requests pass. */
  hold(at: GateAt, recognises: (message: Buffer) => boolean): Promise<void>;
  /** Removes gates that no request has reached. */
  letPass(): void;
  /** While on, nothing is forwarded. */
  stall(on: boolean): void;
  /** While on, the server seems to be down. */
  away(on: boolean): void;
  close(): Promise<void>;
}

interface Gate {
  readonly at: GateAt;
  readonly recognises: (message: Buffer) => boolean;
  readonly reached: () => void;
}

interface Target {
  readonly host: string;
  readonly port: number;
}

export async function openFaultProxy({ host, port }: Target, protocolOf = plain): Promise<FaultProxy> {
  const sockets = new Set<net.Socket>();
  let gates: Gate[] = [];
  let stalled = false;
  let isAway = false;
  const protocol: { value?: Protocol } = {};

  const join = (client: net.Socket) => {
    if (isAway) {
      client.destroy();
      return;
    }
    const server = net.connect(port, host);
    for (const socket of [client, server]) {
      sockets.add(socket);
      socket.setNoDelay(true);
      socket.on('error', () => undefined);
      socket.on('close', () => {
        sockets.delete(socket);
        // Flush bytes that were written before the end.
        (socket === client ? server : client).end();
        (socket === client ? server : client).destroySoon();
      });
    }
    forward(client, server);
    if (stalled) for (const socket of [client, server]) socket.pause();
  };

  function forward(client: net.Socket, server: net.Socket): void {
    const { divideRequests, divideAnswers, requestId, answerId, rewriteAnswer } = protocol.value as Protocol;
    const requests = divideRequests();
    const answers = divideAnswers();
    let isBlocked = false;
    let blockedResponse: { readonly id: number | undefined; readonly reached?: () => void } | undefined;
    client.on('data', (data: Buffer) => {
      for (const message of requests(data)) {
        if (isBlocked) continue;
        const gate = gates.find(({ recognises }) => recognises(message));
        if (gate === undefined) {
          server.write(message);
          continue;
        }
        gates = gates.filter((other) => other !== gate);
        isBlocked = gate.at === 'before' || gate.at === 'half';
        if (gate.at === 'half') server.write(message.subarray(0, Math.ceil(message.length / 2)));
        if (!isBlocked) {
          blockedResponse = { id: requestId(message), ...(gate.at === 'answered' ? { reached: gate.reached } : {}) };
          server.write(message);
        }
        if (gate.at !== 'answered') gate.reached();
      }
    });
    let dropsResponses = false;
    server.on('data', (data: Buffer) => {
      for (const message of answers(data)) {
        if (blockedResponse && answerId(message) === blockedResponse.id) {
          dropsResponses = true;
          blockedResponse.reached?.();
        }
        if (!dropsResponses) client.write(rewriteAnswer(message));
      }
    });
  }

  const listener = net.createServer(join);
  listener.listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const own = (listener.address() as net.AddressInfo).port;
  protocol.value = protocolOf({ from: port, to: own });
  return {
    port: own,
    hold: (at, recognises) => new Promise<void>((reached) => gates.push({ at, recognises, reached })),
    letPass() {
      gates = [];
    },
    stall(on) {
      stalled = on;
      for (const socket of sockets) {
        if (on) socket.pause();
        else socket.resume();
      }
    },
    away(on) {
      isAway = on;
      if (on) for (const socket of sockets) socket.destroy();
    },
    async close() {
      for (const socket of sockets) socket.destroy();
      listener.close();
      await once(listener, 'close');
    },
  };
}
