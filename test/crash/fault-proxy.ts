/**
 * A TCP proxy in front of one server, or of the servers of a cluster, for tests. It can stall, break connections, and
 * block a request at a recognised step.
 *
 * Invariant: bytes are forwarded in order and unchanged; a blocked request blocks only its own connection; a stall
 * loses nothing: bytes in flight arrive late.
 *
 *   1. Client and server are joined by a pair of sockets; bytes are divided into messages if the protocol defines
 *      messages (Kafka), otherwise each chunk is a message.
 *   2. The first message that a gate recognises uses up the gate. The gate determines how far the message gets:
 *      nothing of it, half of it, all of it without a response, or all of it with the response blocked. Nothing
 *      further passes on that connection.
 *   3. A stall pauses reading on both sides, on new connections too; when the stall ends, everything continues.
 *   4. While the proxy is away, connections are broken and new ones are refused, as if the server were down.
 */
import { once } from 'node:events';
import net from 'node:net';
import { type Protocol, plain } from './protocol.ts';

/**
 * How far a recognised request gets: it is not sent; half of it is sent; it is sent, but the response is dropped; it is
 * answered, but the response is dropped.
 */
export type GateAt = 'before' | 'half' | 'sent' | 'answered';

export interface FaultProxy {
  /** Ports of the proxy, one for each server. */
  readonly ports: readonly number[];
  /** Resolves when a request was recognised and is blocked at `at`. Later requests pass. */
  hold(at: GateAt, recognises: (message: Buffer) => boolean): Promise<void>;
  /** Removes gates that no request has reached. */
  openGates(): void;
  /** While on, the proxy forwards nothing. */
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

export async function openFaultProxy(targets: readonly Target[], protocolOf = plain): Promise<FaultProxy> {
  const sockets = new Set<net.Socket>();
  let gates: Gate[] = [];
  let stalled = false;
  let isAway = false;

  const join = (client: net.Socket, { host, port }: Target, protocol: Protocol) => {
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
    forward(client, server, protocol);
    if (stalled) for (const socket of [client, server]) socket.pause();
  };

  function forward(client: net.Socket, server: net.Socket, protocol: Protocol): void {
    const { splitRequests: divideRequests, splitAnswers, requestId, answerId, rewriteAnswer } = protocol;
    const requests = divideRequests();
    const answers = splitAnswers();
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

  async function listen(target: Target): Promise<net.Server> {
    const listener = net.createServer();
    listener.listen(0, '127.0.0.1');
    await once(listener, 'listening');
    const protocol = protocolOf({ from: target.port, to: getPort(listener) });
    listener.on('connection', (client) => join(client, target, protocol));
    return listener;
  }

  const listeners = await Promise.all(targets.map(listen));
  return {
    ports: listeners.map(getPort),
    hold: (at, recognises) => new Promise<void>((reached) => gates.push({ at, recognises, reached })),
    openGates() {
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
      await Promise.all(listeners.map((listener) => once(listener.close(), 'close')));
    },
  };
}

function getPort(listener: net.Server): number {
  return (listener.address() as net.AddressInfo).port;
}
