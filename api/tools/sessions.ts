/**
 * Sessions of the Model Context Protocol, in the memory of this process.
 *
 * Invariant: a session is found only with the key that created it. A session stores no data of its caller except
 * messages, so that streams are resumable: after a broken connection, the client reads the response of a call with
 * `Last-Event-ID`.
 *
 *   1. `initialize` creates a session; the client sends its id with further requests.
 *   2. Each message on a stream of the session is stored, within a budget that all keys share.
 *   3. A session ends when its client deletes it, when its key has too many others, or when it is not used for a day.
 *      Then its streams end, and requests with its id get 404, after which clients create another session.
 */
import { randomUUID } from 'node:crypto';
import type { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { LRUCache } from 'lru-cache';
import { SessionTransport } from './session-transport.ts';
import { StoredEvents } from './stored-events.ts';

export interface Session {
  readonly transport: SessionTransport;
}

const maxKeys = 10_000;
const maxSessionsPerKey = 100;
const maxUnusedMs = 24 * 3_600_000;
/** Interval between two searches for unused sessions. */
const maxPurgeIntervalMs = 600_000;
/** Budget for the stored messages of all sessions. */
const maxStoredBytes = 64 * 1024 ** 2;

export interface SessionOptions {
  readonly heartbeatMs: number;
  readonly unusedMs?: number;
}

export class Sessions {
  readonly #createServer: () => Server;
  readonly #heartbeatMs: number;
  readonly #unusedMs: number;
  readonly #purging: NodeJS.Timeout;
  readonly #events = new StoredEvents(maxStoredBytes);
  readonly #byKey = new LRUCache<string, LRUCache<string, Session>>({
    max: maxKeys,
    dispose: (sessions) => sessions.clear(),
  });

  constructor(createServer: () => Server, { heartbeatMs, unusedMs = maxUnusedMs }: SessionOptions) {
    this.#createServer = createServer;
    this.#heartbeatMs = heartbeatMs;
    this.#unusedMs = unusedMs;
    const purge = () => {
      for (const sessions of this.#byKey.values()) sessions.purgeStale();
    };
    this.#purging = setInterval(purge, Math.min(unusedMs, maxPurgeIntervalMs)).unref();
  }

  find(keyId: string, sessionId: string): Session | undefined {
    return this.#byKey.get(keyId)?.get(sessionId);
  }

  /** Creates a session; its id becomes valid with the first message, which must be `initialize`. */
  async create(keyId: string): Promise<Session> {
    const sessions = this.#byKey.get(keyId) ?? this.#addKey(keyId);
    const server = this.#createServer();
    const sessionId = randomUUID();
    const transport = new SessionTransport({
      sessionIdGenerator: () => sessionId,
      eventStore: this.#events.ofSession(keyId, sessionId),
      keepAliveMs: this.#heartbeatMs,
      onsessioninitialized: () => void sessions.set(sessionId, session),
      onsessionclosed: () => void sessions.delete(sessionId),
    });
    const session = { transport };
    await server.connect(transport as Parameters<Server['connect']>[0]);
    endCancelledStreams(transport);
    return session;
  }

  /** Ends all sessions and their streams. */
  close(): void {
    clearInterval(this.#purging);
    this.#byKey.clear();
  }

  #addKey(keyId: string): LRUCache<string, Session> {
    const sessions = new LRUCache<string, Session>({
      max: maxSessionsPerKey,
      ttl: this.#unusedMs,
      updateAgeOnGet: true,
      dispose: ({ transport }, sessionId) => {
        void transport.close();
        this.#events.remove(keyId, sessionId);
      },
    });
    this.#byKey.set(keyId, sessions);
    return sessions;
  }
}

/** Error code of the Language Server Protocol for cancelled requests. The Model Context Protocol has none. */
const requestCancelled = -32_800;

/**
 * Ends the stream of each request that its client cancels. The official package sends no response to it, so that its
 * stream would stay open. Clients ignore the response.
 */
function endCancelledStreams(transport: SessionTransport): void {
  const receive = transport.onmessage;
  transport.onmessage = (message, extra) => {
    receive?.(message, extra);
    if (!('method' in message) || message.method !== 'notifications/cancelled') return;
    const id = message.params?.requestId;
    if (typeof id !== 'string' && typeof id !== 'number') return;
    const error = { code: requestCancelled, message: 'The request was cancelled.' };
    // The package aborts the request in the next microtask. Fails if the request is answered already.
    queueMicrotask(() => void transport.send({ jsonrpc: '2.0', id, error }).catch(() => undefined));
  };
}
