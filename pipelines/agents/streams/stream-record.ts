import { flagAt, placeOf, timeMicrosAt, uuidAt } from '../../../infra/event-log/fixed-fields.ts';
import { fixedWidthBytes, streamEvents } from '../../../schemas/topics.ts';
import type { StreamedEvent } from './stream-ports.ts';

/** What is read of every record, whoever may want it. */
export interface StreamRecordHead {
  readonly runId: string;
  readonly attempt: number;
  readonly kept: boolean;
}

const runIdAt = placeOf(streamEvents, 'run_id');
const keptAt = placeOf(streamEvents, 'kept');
const createdAt = placeOf(streamEvents, 'created_at');
const afterFixed = createdAt + fixedWidthBytes.time;

/** The head of a framed record of `stream-events`; `undefined` where it is none. */
export function headOf(framed: Buffer): StreamRecordHead | undefined {
  if (framed[0] !== 0 || framed.length <= afterFixed || framed[runIdAt] !== 0x48) return undefined;
  // Zig-zag of a number below 64 is one byte.
  const first = framed[afterFixed] as number;
  const attempt = first < 0x80 ? first >> 1 : new Fields(framed).long();
  return {
    runId: runIds.read(framed, runIdAt + 1, runIdAt + fixedWidthBytes.uuid),
    attempt,
    kept: flagAt(framed, keptAt),
  };
}

/**
 * The whole record; its data is a view. `undefined` where it ends before its fields do.
 * @param runId where its head was read before.
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
  if (fields.isOverrun) return undefined;
  const createdAtMicros = timeMicrosAt(framed, createdAt);
  return { runId, attempt, seq, threadSeq, mode, event, namespace, data, isEnd, createdAtMicros };
}

/** Reads Avro's primitives one after the other, from behind the fields of constant width. Source: Avro 1.12, "Binary Encoding". */
class Fields {
  readonly #framed: Buffer;
  #at: number;

  constructor(framed: Buffer, at = afterFixed) {
    this.#framed = framed;
    this.#at = at;
  }

  get isOverrun(): boolean {
    return this.#at > this.#framed.length;
  }

  long(): number {
    let value = 0;
    for (let factor = 1; ; factor *= 128) {
      // Beyond the end: read as zero, and found out at the end.
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

/** A text that mostly is the one that was read before: that is given again, without decoding it. */
class RepeatedText {
  #bytes = Buffer.alloc(0);
  #text = '';

  read(framed: Buffer, from: number, to: number): string {
    if (!this.#isAt(framed, from, to)) {
      this.#bytes = Buffer.from(framed.subarray(from, to));
      this.#text = this.#bytes.toString('utf8');
    }
    return this.#text;
  }

  #isAt(framed: Buffer, from: number, to: number): boolean {
    if (to - from !== this.#bytes.length) return false;
    for (let at = from; at < to; at += 1) if (framed[at] !== this.#bytes[at - from]) return false;
    return true;
  }
}

const runIds = new RepeatedText();
const modes = new RepeatedText();
const events = new RepeatedText();
const namespaces = new RepeatedText();
