/**
 * Gives an event that repeats a stored event the version of that event. A client that loses the response sends its
 * request again; with a version of its own, the repeat would override newer events of the run.
 *
 * Invariant: of two equal events that are accepted within {@link repeatWindowMicros}, the later one is stored under the
 * version of the earlier one, so it changes nothing. Events are equal if their bytes are, except for the fields that
 * the API sets on acceptance. An event is never dropped, so a version that is known without its event is harmless.
 *
 *   1. The versions of recent events are in memory. An event that is missing there may be stored by another process or
 *      be forgotten: the sink then reads its version from `event_versions`, except for runs of which it remembers all
 *      events (`assign-key-times.ts`).
 *   2. Each insert of events also inserts their versions, and a batch is acknowledged after both. Equal events have the
 *      same key, so another process that has the partition later finds the version.
 *
 * A redelivered event and a replayed dead-letter record have the version that they had before, and keep it.
 */
import { hash } from 'node:crypto';
import { RecentMap } from '../../../infra/cache/recent-map.ts';
import type { ClickHouse } from '../../../infra/clickhouse/clickhouse.ts';
import { lookupSettings } from '../../../infra/clickhouse/settings.ts';
import {
  copyUuidWords,
  getFieldOffset,
  getFixedEnd,
  isEightByteLong,
  readTimeMicrosAt,
  readUuidAt,
  skipString,
} from '../../../infra/event-log/avro.ts';
import type { LogMessage } from '../../../infra/event-log/event-log.ts';
import { openSlices } from '../../../infra/timeouts/time-slices.ts';
import { fixedWidthBytes, type Topic } from '../../../schemas/topics.ts';
import type { ValidRecord } from './split-into-batches.ts';

/** Minimum number of events whose version a process remembers. A process holds at most twice as many, in 20 MB. */
export const minRememberedEvents = 200_000;
/**
 * Maximum time between two acceptances of the same event; it is longer than the time for which clients retry a request.
 */
export const repeatWindowMicros = 10 * 60_000_000;
/** Size of a digest in 32-bit words. Only digests of events of one run are compared in ClickHouse. */
const digestWords = 2;

interface StampedEvents<R> {
  /** All events, in their order, under the versions that they are stored under. */
  readonly events: readonly R[];
  /** Number of events that repeat earlier events. */
  readonly repeats: number;
}

/** What is known of the events with one digest. */
interface KnownEvent {
  readonly version: bigint;
  readonly receivedAtMicros: number;
}

/** A version in two numbers, because a number has only 53 bits. */
const lowBits = 22n;
const lowMask = (1n << lowBits) - 1n;

export class EventVersions {
  /** Digest to version, in two numbers, and time of acceptance. */
  readonly #known: RecentMap;

  constructor(minEvents = minRememberedEvents) {
    this.#known = new RecentMap({ minEntries: minEvents, wordsPerKey: digestWords, numbersPerValue: 3 });
  }

  /**
   * Assigns versions, and sets `stamp` of the events.
   *
   * @param events Events in the order of their versions. An event with `mayBeRepeat` false is looked up in memory only.
   * @throws errors of ClickHouse.
   */
  async assign<R extends ValidRecord & { readonly mayBeRepeat?: boolean }>(
    topic: Topic,
    events: readonly R[],
    clickhouse: ClickHouse,
  ): Promise<StampedEvents<R>> {
    const { repeats: identity } = topic;
    if (identity === undefined) return { events, repeats: 0 };
    const digests = new Uint32Array(events.length * digestWords);
    // By digest. The memory may forget an event while the others of the batch are added to it.
    const knownInBatch = new Map<bigint, KnownEvent>();
    const unknown: { readonly value: Buffer; readonly at: number }[] = [];
    const times: (number | undefined)[] = [];
    const endSlice = openSlices();
    for (const [index, { record, original = record, mayBeRepeat = true }] of events.entries()) {
      const turn = endSlice();
      if (turn) await turn;
      const at = index * digestWords;
      const { value } = original;
      const receivedAt = findReceivedAt(topic, identity.receivedAt, value);
      times.push(receivedAt === undefined ? undefined : readTimeMicrosAt(value, receivedAt));
      if (receivedAt === undefined) continue;
      writeDigest(topic, value, receivedAt, digests, at);
      const known = this.#get(digests, at);
      if (known !== undefined) knownInBatch.set(toDigest(digests, at), known);
      else if (mayBeRepeat) unknown.push({ value, at });
    }
    const stored = await this.#readStored(topic, identity.id, unknown, digests, clickhouse);
    for (const [digest, known] of stored) knownInBatch.set(digest, known);
    let repeats = 0;
    const stamp = (event: R, index: number): R => {
      const receivedAtMicros = times[index];
      if (receivedAtMicros === undefined) return event;
      const at = index * digestWords;
      const { record, original = record } = event;
      const digest = toDigest(digests, at);
      const known = knownInBatch.get(digest) ?? this.#get(digests, at);
      const isAfter = known !== undefined && record.version >= known.version;
      if (isAfter && receivedAtMicros - known.receivedAtMicros <= repeatWindowMicros) {
        event.stamp = { digest, receivedAtMicros: known.receivedAtMicros };
        if (record.version === known.version) return event;
        repeats++;
        return { ...event, record: { ...record, version: known.version }, original };
      }
      if (known === undefined || isAfter) {
        knownInBatch.set(digest, { version: record.version, receivedAtMicros });
        this.#set(digests, at, record.version, receivedAtMicros);
      }
      event.stamp = { digest, receivedAtMicros };
      return event;
    };
    const stamped: R[] = [];
    for (const [index, event] of events.entries()) {
      stamped.push(stamp(event, index));
      const turn = endSlice();
      if (turn) await turn;
    }
    return { events: stamped, repeats };
  }

  #get(digests: Uint32Array, at: number): KnownEvent | undefined {
    const high = this.#known.get(digests, at);
    if (high === undefined) return undefined;
    const low = this.#known.get(digests, at, 1) as number;
    return {
      version: (BigInt(high) << lowBits) | BigInt(low),
      receivedAtMicros: this.#known.get(digests, at, 2) as number,
    };
  }

  #set(digests: Uint32Array, at: number, version: bigint, receivedAtMicros: number): void {
    this.#known.set(digests, at, Number(version >> lowBits), Number(version & lowMask), receivedAtMicros);
  }

  /** Reads the stored versions of events that are not in memory, remembers them, and returns them by digest. */
  async #readStored(
    topic: Topic,
    idField: string,
    unknown: readonly { readonly value: Buffer; readonly at: number }[],
    digests: Uint32Array,
    clickhouse: ClickHouse,
  ): Promise<Map<bigint, KnownEvent>> {
    const found = new Map<bigint, KnownEvent>();
    if (unknown.length === 0) return found;
    const tenantAt = getFieldOffset(topic, 'tenant_id');
    const idAt = getFieldOffset(topic, idField);
    const rows = await clickhouse.query<{ high: number; low: number; stored: string; micros: number }>({
      name: 'find-event-versions',
      settings: lookupSettings,
      sql: `SELECT toUInt32(bitShiftRight(digest, 32)) AS high, toUInt32(bitAnd(digest, 4294967295)) AS low,
              toString((max((version, received_at)) AS last).1) AS stored, toUnixTimestamp64Micro(last.2) AS micros
            FROM event_versions WHERE (tenant_id, id, digest) IN keys GROUP BY tenant_id, id, digest`,
      externalTable: {
        name: 'keys',
        structure: 'tenant_id UUID, id UUID, digest UInt64',
        rows: unknown.map(({ value, at }) => [
          readUuidAt(value, tenantAt),
          readUuidAt(value, idAt),
          String(toDigest(digests, at)),
        ]),
      },
    });
    const words = new Uint32Array(digestWords);
    for (const { high, low, stored, micros } of rows) {
      words.set([high, low]);
      const known = { version: BigInt(stored), receivedAtMicros: micros };
      found.set(toDigest(words, 0), known);
      this.#set(words, 0, known.version, known.receivedAtMicros);
    }
    return found;
  }
}

/** Later than every version. */
const latestVersion = (1n << 63n) - 1n;

/** Returns whether an event that is accepted now repeats a stored event. @throws errors of ClickHouse. */
export async function isRepeatOfStoredEvent(
  topic: Topic,
  { key, value }: LogMessage,
  clickhouse: ClickHouse,
): Promise<boolean> {
  const record = { partition: 0, offset: 0, key, value, headers: {}, version: latestVersion };
  const { repeats } = await new EventVersions(1).assign(topic, [{ record, schemaId: 0 }], clickhouse);
  return repeats > 0;
}

const toDigest = (words: Uint32Array, at: number): bigint =>
  (BigInt(words[at] as number) << 32n) | BigInt(words[at + 1] as number);

/**
 * Returns the position of the time of acceptance, which follows the fields of fixed width and, in some topics, strings.
 * Returns undefined if it cannot be overwritten in place.
 */
function findReceivedAt(topic: Topic, name: string, value: Buffer): number | undefined {
  let at: number | undefined = getFixedEnd(topic);
  for (let field = topic.fixed.length; topic.columns[field] !== name && at !== undefined; field++)
    at = skipString(value, at);
  if (at === undefined || value.length < at + fixedWidthBytes.time || !isEightByteLong(value, at)) return undefined;
  return at;
}

const scratch = Buffer.alloc(fixedWidthBytes.uuid + 2 * fixedWidthBytes.key_time + fixedWidthBytes.time);

/**
 * Writes the digest of the event as the client sent it. The API may set the project, the key times and the time of
 * acceptance differently when the same request is repeated, so they are zeros meanwhile. The times that the client
 * stated are in other fields, too.
 */
function writeDigest(topic: Topic, value: Buffer, receivedAt: number, digests: Uint32Array, at: number): void {
  const timeEnd = receivedAt + fixedWidthBytes.time;
  value.copy(scratch, 0, receivedAt, timeEnd);
  value.fill(0, receivedAt, timeEnd);
  // Project and key times are next to each other.
  const locationAt = topic.assignsTraceLocation ? getFieldOffset(topic, 'session_id') : 0;
  const locationEnd = topic.assignsTraceLocation ? getFieldOffset(topic, 'trace_time') + fixedWidthBytes.key_time : 0;
  value.copy(scratch, fixedWidthBytes.time, locationAt, locationEnd);
  value.fill(0, locationAt, locationEnd);
  try {
    // A digest in text form needs no separate buffer.
    const digest = hash('sha1', value, 'binary');
    for (let word = 0; word < digestWords; word++) {
      let bits = 0;
      for (let byte = 0; byte < 4; byte++) bits = (bits << 8) | digest.charCodeAt(word * 4 + byte);
      digests[at + word] = bits;
    }
  } finally {
    scratch.copy(value, receivedAt, 0, fixedWidthBytes.time);
    scratch.copy(value, locationAt, fixedWidthBytes.time, fixedWidthBytes.time + locationEnd - locationAt);
  }
}

const rowBytes = 56;

/** Insert of the rows of {@link encodeEventVersions}. */
export const eventVersionsInsert = {
  table: 'event_versions',
  columns: ['tenant_id', 'id', 'digest', 'version', 'received_at'],
  format: 'RowBinary',
} as const;

/**
 * Returns the rows of `event_versions` for the events that have a stamp, in the format RowBinary; undefined if none has.
 * Source: ClickHouse documentation, "RowBinary".
 */
export function encodeEventVersions(topic: Topic, events: readonly ValidRecord[]): Buffer | undefined {
  if (topic.repeats === undefined) return undefined;
  const positions = [getFieldOffset(topic, 'tenant_id'), getFieldOffset(topic, topic.repeats.id)];
  const rows = Buffer.alloc(events.length * rowBytes);
  const words = new Uint32Array(4);
  let at = 0;
  for (const { record, stamp } of events) {
    if (stamp === undefined) continue;
    for (const position of positions) {
      copyUuidWords(record.value, position, words, 0);
      // A UUID is two 64-bit integers in little-endian form.
      for (const word of [1, 0, 3, 2]) at = rows.writeUInt32LE(words[word] as number, at);
    }
    at = rows.writeBigUInt64LE(stamp.digest, at);
    at = rows.writeBigUInt64LE(record.version, at);
    at = rows.writeBigInt64LE(BigInt(stamp.receivedAtMicros), at);
  }
  return at === 0 ? undefined : rows.subarray(0, at);
}
