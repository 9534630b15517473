/** Fetched records in memory: the buffer of one partition, and the byte budget that all partitions share. */
import type { IHeaders, KafkaMessage } from 'kafkajs';
import { computeRecordVersion, type LogRecord, type Subscription } from '../event-log.ts';

/** A record with its decoded key and headers, and with its raw key and headers, which may contain any bytes. */
export interface KafkaRecord extends LogRecord {
  readonly raw: { readonly key: Buffer | null; readonly headers: IHeaders };
  /** Approximate size in memory. */
  readonly bytes: number;
}

const emptyBuffer = Buffer.alloc(0);
/** Approximate overhead of a record in memory, in addition to value, key and headers. */
const overheadBytes = 200;

/** Decodes bytes of any origin to text that Postgres can store: no text may contain the character NUL. */
const decodeText = (bytes: Buffer | string) => bytes.toString().replaceAll('\0', '\ufffd');

/**
 * Converts a fetched message, which any producer may have sent. A message without a value gets an empty value; the sink
 * sends the record to the dead-letter queue. Headers without a value are left out.
 */
export function toKafkaRecord(partition: number, message: KafkaMessage): KafkaRecord {
  const { key, value, headers = {} } = message;
  const texts: Record<string, string> = {};
  let bytes = overheadBytes + (key?.length ?? 0) + (value?.length ?? 0);
  for (const [name, given] of Object.entries(headers)) {
    // The client returns null for a header without a value, although its types do not say so.
    const one = (Array.isArray(given) ? given.at(-1) : given) ?? undefined;
    if (one === undefined) continue;
    texts[decodeText(name)] = decodeText(one);
    bytes += name.length + one.length;
  }
  const offset = Number(message.offset);
  return {
    partition,
    offset,
    version: computeRecordVersion(Number(message.timestamp), offset, texts),
    key: key?.toString() ?? '',
    value: value ?? emptyBuffer,
    headers: texts,
    raw: { key, headers },
    bytes,
  };
}

/** Fetched records of one partition that are not handled yet, in log order and without duplicates. */
export class RecordBuffer {
  #records: KafkaRecord[] = [];
  #bytes = 0;
  #nextOffset: number | undefined;

  get bytes(): number {
    return this.#bytes;
  }

  get isEmpty(): boolean {
    return this.#records.length === 0;
  }

  get firstOffset(): number | undefined {
    return this.#records[0]?.offset;
  }

  get lastOffset(): number | undefined {
    return this.#records.at(-1)?.offset;
  }

  /** Expected offset of the next added record; undefined before {@link RecordBuffer.begin}. */
  get nextOffset(): number | undefined {
    return this.#nextOffset;
  }

  /** Sets the first offset to handle and drops earlier records. */
  begin(offset: number): void {
    this.#records = this.#records.filter((record) => record.offset >= offset);
    this.#bytes = sumBytes(this.#records);
    this.#nextOffset = Math.max(offset, (this.lastOffset ?? -1) + 1);
  }

  add(records: readonly KafkaRecord[]): void {
    const firstNewOffset = this.#nextOffset ?? (this.lastOffset ?? -1) + 1;
    for (const record of records) {
      if (record.offset < firstNewOffset) continue;
      this.#records.push(record);
      this.#bytes += record.bytes;
    }
    if (this.#nextOffset !== undefined) this.#nextOffset = Math.max(firstNewOffset, (this.lastOffset ?? -1) + 1);
  }

  clear(): void {
    this.#records = [];
    this.#bytes = 0;
  }

  /**
   * Removes and returns the next records up to `limits`. A record that exceeds the limits by itself is returned alone.
   */
  take(limits: Subscription['limits']): KafkaRecord[] {
    let rows = 0;
    let bytes = 0;
    for (const { value } of this.#records) {
      if (rows > 0 && (rows >= limits.rows || bytes + value.length > limits.bytes)) break;
      rows++;
      bytes += value.length;
    }
    const taken = this.#records.splice(0, rows);
    this.#bytes -= sumBytes(taken);
    return taken;
  }
}

/** Returns the approximate size of records in memory. */
export function sumBytes(records: readonly KafkaRecord[]): number {
  return records.reduce((sum, record) => sum + record.bytes, 0);
}

/**
 * Counts the bytes that all partitions hold in memory. It does not enforce the limit: callers check {@link
 * ByteBudget.spent}.
 */
export class ByteBudget {
  readonly #limitBytes: number;
  readonly #onFreed = new Set<() => void>();
  #usedBytes = 0;

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes;
  }

  get spent(): boolean {
    return this.#usedBytes >= this.#limitBytes;
  }

  get usedBytes(): number {
    return this.#usedBytes;
  }

  take(bytes: number): void {
    this.#usedBytes += bytes;
  }

  free(bytes: number): void {
    this.#usedBytes -= bytes;
    for (const listener of this.#onFreed) listener();
  }

  /** Calls `listener` after each {@link ByteBudget.free}. @returns a function that removes the listener. */
  onFreed(listener: () => void): () => void {
    this.#onFreed.add(listener);
    return () => this.#onFreed.delete(listener);
  }
}
