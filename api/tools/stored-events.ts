/**
 * Stores the last messages of the streams of sessions, so that a client can resume after a broken connection.
 *
 * Invariant: all keys share one budget. When it is exceeded, the oldest message of the key with the most bytes is
 * removed, so that one key with large results does not remove those of others.
 */
import type { EventStore } from '@modelcontextprotocol/sdk/server/webStandardStreamableHttp.js';
import type { JSONRPCMessage } from '@modelcontextprotocol/sdk/types.js';

interface StoredEvent {
  readonly streamId: string;
  readonly message: JSONRPCMessage;
  readonly bytes: number;
}

/** The events of a key by id, oldest first. */
interface EventsOfKey {
  bytes: number;
  readonly events: Map<string, StoredEvent>;
}

/** Estimated size of an event without its message, in bytes. */
const eventOverheadBytes = 200;

export class StoredEvents {
  readonly #maxBytes: number;
  readonly #keys = new Map<string, EventsOfKey>();
  #bytes = 0;
  #lastNumber = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  ofSession(keyId: string, sessionId: string): EventStore {
    const prefix = toPrefix(sessionId);
    const find = (eventId: string) =>
      eventId.startsWith(prefix) ? this.#keys.get(keyId)?.events.get(eventId) : undefined;
    return {
      storeEvent: async (streamId, message) => {
        const eventId = `${prefix}${String(++this.#lastNumber).padStart(16, '0')}`;
        const bytes = JSON.stringify(message).length + eventOverheadBytes;
        this.#add(keyId, eventId, { streamId, message, bytes });
        return eventId;
      },
      getStreamIdForEventId: async (eventId) => find(eventId)?.streamId,
      replayEventsAfter: async (lastEventId, { send }) => {
        const streamId = find(lastEventId)?.streamId ?? '';
        const later: [string, JSONRPCMessage][] = [];
        for (const [id, event] of this.#keys.get(keyId)?.events ?? [])
          if (id.startsWith(prefix) && id > lastEventId && event.streamId === streamId) later.push([id, event.message]);
        // The message of a priming event is empty.
        for (const [id, message] of later) if (Object.keys(message).length > 0) await send(id, message);
        return streamId;
      },
    };
  }

  /** Removes the events of a session that has ended. */
  remove(keyId: string, sessionId: string): void {
    const prefix = toPrefix(sessionId);
    for (const id of this.#keys.get(keyId)?.events.keys() ?? []) if (id.startsWith(prefix)) this.#delete(keyId, id);
  }

  #add(keyId: string, eventId: string, event: StoredEvent): void {
    const ofKey = this.#keys.get(keyId) ?? { bytes: 0, events: new Map() };
    this.#keys.set(keyId, ofKey);
    ofKey.events.set(eventId, event);
    ofKey.bytes += event.bytes;
    this.#bytes += event.bytes;
    while (this.#bytes > this.#maxBytes) {
      const [largestKeyId, { events }] = [...this.#keys].reduce((a, b) => (b[1].bytes > a[1].bytes ? b : a));
      const [oldest] = events.keys();
      this.#delete(largestKeyId, oldest as string);
    }
  }

  #delete(keyId: string, eventId: string): void {
    const ofKey = this.#keys.get(keyId);
    const event = ofKey?.events.get(eventId);
    if (ofKey === undefined || event === undefined) return;
    ofKey.events.delete(eventId);
    ofKey.bytes -= event.bytes;
    this.#bytes -= event.bytes;
    if (ofKey.events.size === 0) this.#keys.delete(keyId);
  }
}

const toPrefix = (sessionId: string) => `${sessionId}_`;
