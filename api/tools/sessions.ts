/**
 * Sessions of the Model Context Protocol, in the memory of this process.
 *
 * Invariant: a session is only found with the key that created it. A session keeps no data of its caller; what it gives is
 * resumable streams: the answer of a call whose connection broke is read again with `Last-Event-ID`.
 *
 *   1. `initialize` creates a session; the client sends its id with further requests.
 *   2. Each message that is sent on a stream of the session is stored, within a budget that all sessions share.
 *   3. A session ends when its client deletes it, when its key has too many others, or when it is not used for a day.
 *      Then its streams end, and requests with its id get 404, after which clients create another session.
 */
import { randomUUID } from 'node:crypto';
import type { Server } from '@modelcontextprotocol/sdk/server/index.js';
import {
  type EventStore,
  WebStandardStreamableHTTPServerTransport,
} from '@modelcontextprotocol/sdk/server/webStandardStreamableHttp.js';
import type { JSONRPCMessage } from '@modelcontextprotocol/sdk/types.js';
import { LRUCache } from 'lru-cache';

export interface Session {
  readonly transport: WebStandardStreamableHTTPServerTransport;
}

const maxKeys = 10_000;
const maxSessionsPerKey = 100;
const unusedMs = 24 * 3_600_000;
/** Budget for the stored messages of all sessions. */
const maxStoredBytes = 64 * 1024 ** 2;

export class Sessions {
  readonly #createServer: () => Server;
  readonly #heartbeatMs: number;
  readonly #events = new StoredEvents();
  readonly #byKey = new LRUCache<string, LRUCache<string, Session>>({
    max: maxKeys,
    dispose: (sessions) => sessions.clear(),
  });

  constructor(createServer: () => Server, heartbeatMs: number) {
    this.#createServer = createServer;
    this.#heartbeatMs = heartbeatMs;
  }

  find(keyId: string, sessionId: string): Session | undefined {
    return this.#byKey.get(keyId)?.get(sessionId);
  }

  /** Creates a session; its id becomes valid with the first message, which must be `initialize`. */
  async create(keyId: string): Promise<Session> {
    const sessions = this.#byKey.get(keyId) ?? this.#addKey(keyId);
    const server = this.#createServer();
    const sessionId = randomUUID();
    const transport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: () => sessionId,
      eventStore: this.#events.ofSession(sessionId),
      keepAliveMs: this.#heartbeatMs,
      onsessioninitialized: () => void sessions.set(sessionId, session),
      onsessionclosed: () => void sessions.delete(sessionId),
    });
    const session = { transport };
    await server.connect(transport as Parameters<Server['connect']>[0]);
    return session;
  }

  /** Ends all sessions and their streams. */
  close(): void {
    this.#byKey.clear();
  }

  #addKey(keyId: string): LRUCache<string, Session> {
    const sessions = new LRUCache<string, Session>({
      max: maxSessionsPerKey,
      ttl: unusedMs,
      updateAgeOnGet: true,
      dispose: ({ transport }) => void transport.close(),
    });
    this.#byKey.set(keyId, sessions);
    return sessions;
  }
}

/** The messages of streams, for clients that read them again. */
class StoredEvents {
  #lastNumber = 0;
  readonly #events = new LRUCache<string, { readonly streamId: string; readonly message: JSONRPCMessage }>({
    maxSize: maxStoredBytes,
    sizeCalculation: ({ message }) => JSON.stringify(message).length + 200,
  });

  ofSession(sessionId: string): EventStore {
    const prefix = `${sessionId}_`;
    const find = (eventId: string) => (eventId.startsWith(prefix) ? this.#events.get(eventId) : undefined);
    return {
      storeEvent: async (streamId, message) => {
        const eventId = `${prefix}${String(++this.#lastNumber).padStart(16, '0')}`;
        this.#events.set(eventId, { streamId, message });
        return eventId;
      },
      getStreamIdForEventId: async (eventId) => find(eventId)?.streamId,
      replayEventsAfter: async (lastEventId, { send }) => {
        const streamId = find(lastEventId)?.streamId ?? '';
        const later = [...this.#events.entries()]
          .filter(([id, event]) => id.startsWith(prefix) && id > lastEventId && event.streamId === streamId)
          .sort(([one], [other]) => (one < other ? -1 : 1));
        // The message of a priming event is empty.
        for (const [id, { message }] of later) if (Object.keys(message).length > 0) await send(id, message);
        return streamId;
      },
    };
  }
}
