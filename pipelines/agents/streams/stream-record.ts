import { fieldOffset, flagAt, timeMicrosAt, uuidAt } from '../../../infra/event-log/avro.ts';
import { fixedWidthBytes, streamEvents } from '../../../schemas/topics.ts';
import type { StreamedEvent } from './stream-types.ts';

/** The fields that are decoded from every record, regardless of its readers. */
export interface StreamRecordHead {
  readonly runId: string;
  readonly attempt: number;
  readonly kept: boolean;
}

const runIdAt = fieldOffset(streamEvents, 'run_id');
const keptAt = fieldOffset(streamEvents, 'kept');
const createdAt = fieldOffset(streamEvents, 'created_at');
const afterFixed = createdAt + fixedWidthBytes.time;

/** Decodes the head of a framed record of `stream-events`; undefined if the record is invalid. */
export function decodeStreamHead(framed: Buffer): StreamRecordHead | undefined {
  if (framed[0] !== 0 || framed.length <= afterFixed || framed[runIdAt] !== 0x48) return undefined;
  // The zig-zag encoding of a number below 64 is one byte.
  const first = framed[afterFixed] as number;
  const attempt = first < 0x80 ? first >> 1 : new Fields(framed).long();
  return {
    runId: runIds.read(framed, runIdAt + 1, runIdAt + fixedWidthBytes.uuid),
    attempt,
    kept: flagAt(framed, keptAt),
  };
}

/**
 * Decodes a whole record; undefined if it is truncated. `data` is a view of the record's memory.
 *
 * @param runId the run id; pass it if the head of the record was decoded before, to avoid decoding it again.
 */
export function decodeStreamRecord(framed: Buffer, runId = uuidAt(framed, runIdAt)): StreamedEvent | undefined {
  const fields = new Fields(framed);
  const attempt = fields.long();
  const seq = fields.long();
  const threadSeq = fields.long();
  const mode = fields.text(modes);
  const event = fields.text(events);
  const namespace = fields.text(namespaces);
  const data = fields.bytes();
  const isEnd = fields.flag();
  if (fields.isTruncated) return undefined;
  const createdAtMicros = timeMicrosAt(framed, createdAt);
  return { runId, attempt, seq, threadSeq, mode, event, namespace, data, isEnd, createdAtMicros };
}

/** Reads Avro primitives in sequence, starting after the fixed-width fields. Source: Avro 1.12, "Binary Encoding". */
class Fields {
  readonly #framed: Buffer;
  #at: number;

  constructor(framed: Buffer, at = afterFixed) {
    this.#framed = framed;
    this.#at = at;
  }

  get isTruncated(): boolean {
    return this.#at > this.#framed.length;
  }

  long(): number {
    let value = 0;
    for (let factor = 1; ; factor *= 128) {
      // Bytes beyond the end are read as zero; `isTruncated` detects this afterwards.
      const byte = this.#framed[this.#at++] ?? 0;
      value += (byte & 0x7f) * factor;
      if (byte < 0x80) return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
    }
  }

  bytes(): Buffer {
    const length = this.long();
    const from = this.#at;
    this.#at = length >= 0 ? from + length : Number.POSITIVE_INFINITY;
    return this.#framed.subarray(from, this.#at);
  }

  text(repeated: RepeatedText): string {
    const length = this.long();
    const from = this.#at;
    this.#at = length >= 0 ? from + length : Number.POSITIVE_INFINITY;
    return repeated.read(this.#framed, from, this.#at);
  }

  flag(): boolean {
    return this.#framed[this.#at++] === 1;
  }
}

/** Decodes a text that usually equals the previous one: an equal text is returned from the cache without decoding. */
class RepeatedText {
  #bytes = Buffer.alloc(0);
  #text = '';

  read(framed: Buffer, from: number, to: number): string {
    if (!this.#isCached(framed, from, to)) {
      this.#bytes = Buffer.from(framed.subarray(from, to));
      this.#text = this.#bytes.toString('utf8');
    }
    return this.#text;
  }

  #isCached(framed: Buffer, from: number, to: number): boolean {
    if (to - from !== this.#bytes.length) return false;
    for (let at = from; at < to; at += 1) if (framed[at] !== this.#bytes[at - from]) return false;
    return true;
  }
}

const runIds = new RepeatedText();
const modes = new RepeatedText();
const events = new RepeatedText();
const namespaces = new RepeatedText();
