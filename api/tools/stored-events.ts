/**
 * Stores the last messages of the streams of sessions, so that a client can resume after a broken connection.
 *
 * Invariant: all keys share one budget. When it is exceeded, the oldest message of the key with the most bytes is
 * removed, so that one key with large results does not remove those of others.
 */
import type { EventStore } from '@modelcontextprotocol/sdk/server/webStandardStreamableHttp.js';
import type { JSONRPCMessage } from '@modelcontextprotocol/sdk/types.js';

interface StoredEvent {
  /** Names the stream among those of all sessions of the key: the prefix of the session, and the id of the stream. */
  readonly streamKey: string;
  /** JSON: the values of a message can take twenty times as much memory. */
  readonly message: string;
  readonly bytes: number;
}

interface EventsOfKey {
  bytes: number;
  /** By id, oldest first. */
  readonly events: Map<string, StoredEvent>;
  /** The ids of the events of each stream, oldest first. */
  readonly streams: Map<string, Set<string>>;
}

/** Estimated size of an event without its message, in bytes. */
const eventOverheadBytes = 300;

/** Size of a text in the memory of V8, which stores all characters of a text in one byte, or all in two. */
const memoryBytes = (text: string) => (/[^\0-\xff]/.test(text) ? 2 : 1) * text.length;

/** The message of a priming event, which begins a stream. */
const emptyMessage = '{}';

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
    const findStreamKey = (eventId: string) =>
      eventId.startsWith(prefix) ? this.#keys.get(keyId)?.events.get(eventId)?.streamKey : undefined;
    return {
      storeEvent: async (streamId, sent) => {
        const eventId = `${prefix}${String(++this.#lastNumber).padStart(16, '0')}`;
        const message = JSON.stringify(sent);
        const bytes = memoryBytes(message) + eventOverheadBytes;
        this.#add(keyId, eventId, { streamKey: prefix + streamId, message, bytes });
        return eventId;
      },
      getStreamIdForEventId: async (eventId) => findStreamKey(eventId)?.slice(prefix.length),
      replayEventsAfter: async (lastEventId, { send }) => {
        const streamKey = findStreamKey(lastEventId) ?? prefix;
        const { events, streams } = this.#keys.get(keyId) ?? {};
        const later = [...(streams?.get(streamKey) ?? [])]
          .filter((id) => id > lastEventId)
          .map((id) => [id, events?.get(id)?.message ?? emptyMessage] as const);
        for (const [id, message] of later)
          if (message !== emptyMessage) await send(id, JSON.parse(message) as JSONRPCMessage);
        return streamKey.slice(prefix.length);
      },
    };
  }

  /** Removes the events of a session that has ended. */
  remove(keyId: string, sessionId: string): void {
    const prefix = toPrefix(sessionId);
    for (const id of this.#keys.get(keyId)?.events.keys() ?? []) if (id.startsWith(prefix)) this.#delete(keyId, id);
  }

  #add(keyId: string, eventId: string, event: StoredEvent): void {
    const ofKey = this.#keys.get(keyId) ?? { bytes: 0, events: new Map(), streams: new Map() };
    this.#keys.set(keyId, ofKey);
    ofKey.events.set(eventId, event);
    const stream = ofKey.streams.get(event.streamKey) ?? new Set();
    ofKey.streams.set(event.streamKey, stream.add(eventId));
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
    const stream = ofKey.streams.get(event.streamKey);
    stream?.delete(eventId);
    if (stream?.size === 0) ofKey.streams.delete(event.streamKey);
    ofKey.bytes -= event.bytes;
    this.#bytes -= event.bytes;
    if (ofKey.events.size === 0) this.#keys.delete(keyId);
  }
}

const toPrefix = (sessionId: string) => `${sessionId}_`;
