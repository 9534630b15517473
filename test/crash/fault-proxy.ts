/**
 * A TCP proxy of the tests in front of one server: it stalls, breaks off, and holds a request at a step that can be
 * recognised.
 *
 * Invariant: bytes go through in order and unchanged; what is held is held for its connection only, and a stall loses
 * nothing: what was under way arrives late.
 *
 *   1. Client and server are joined by a pair of sockets; what comes is divided into messages where the protocol says how
 *      (Kafka), else taken as it comes.
 *   2. A message that a waiting gate recognises ends the waiting. The gate says how far it gets: nothing of it, half of
 *      it, all of it without an answer, or up to the answer, which is kept back. Nothing further passes on that
 *      connection.
 *   3. A stall stops reading on both sides and of connections that come meanwhile; its end lets everything go on.
 *   4. Away: connections are broken and new ones are refused, as where a server is gone.
 */
import { once } from 'node:events';
import net from 'node:net';
import { type Protocol, plain } from './protocol.ts';

/** How far a recognised request gets: not to the server; half of it; to the server; to the server's answer, which is kept. */
export type GateAt = 'before' | 'half' | 'sent' | 'answered';

export interface FaultProxy {
  readonly port: number;
  /** Resolves once a request was recognised and is held as told. Later requests pass. */
  hold(at: GateAt, recognises: (message: Buffer) => boolean): Promise<void>;
  /** Gates that nothing has reached are forgotten. */
  letPass(): void;
  /** Nothing moves while on. */
  stall(on: boolean): void;
  /** Nobody is there while on. */
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
  let gone = false;
  const protocol: { value?: Protocol } = {};

  const join = (client: net.Socket) => {
    if (gone) {
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
        // What was written before the end still goes out.
        (socket === client ? server : client).end();
        (socket === client ? server : client).destroySoon();
      });
    }
    passOn(client, server);
    if (stalled) for (const socket of [client, server]) socket.pause();
  };

  function passOn(client: net.Socket, server: net.Socket): void {
    const { divideRequests, divideAnswers, requestId, answerId, rewriteAnswer } = protocol.value as Protocol;
    const requests = divideRequests();
    const answers = divideAnswers();
    let held = false;
    let answerHeld: { readonly id: number | undefined; readonly reached?: () => void } | undefined;
    client.on('data', (data: Buffer) => {
      for (const message of requests(data)) {
        if (held) continue;
        const gate = gates.find(({ recognises }) => recognises(message));
        if (gate === undefined) {
          server.write(message);
          continue;
        }
        gates = gates.filter((other) => other !== gate);
        held = gate.at === 'before' || gate.at === 'half';
        if (gate.at === 'half') server.write(message.subarray(0, Math.ceil(message.length / 2)));
        if (!held) {
          answerHeld = { id: requestId(message), ...(gate.at === 'answered' ? { reached: gate.reached } : {}) };
          server.write(message);
        }
        if (gate.at !== 'answered') gate.reached();
      }
    });
    let silent = false;
    server.on('data', (data: Buffer) => {
      for (const message of answers(data)) {
        if (answerHeld && answerId(message) === answerHeld.id) {
          silent = true;
          answerHeld.reached?.();
        }
        if (!silent) client.write(rewriteAnswer(message));
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
      gone = on;
      if (on) for (const socket of sockets) socket.destroy();
    },
    async close() {
      for (const socket of sockets) socket.destroy();
      listener.close();
      await once(listener, 'close');
    },
  };
}
