import { flagAt, placeOf, uuidAt } from '../../../infra/event-log/fixed-fields.ts';
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
  return { runId: uuidAt(framed, runIdAt), attempt, kept: flagAt(framed, keptAt) };
}

/** The whole record; its data is a view. `undefined` where it ends before its fields do. */
export function decodeStreamRecord(framed: Buffer): StreamedEvent | undefined {
  const fields = new Fields(framed);
  const attempt = fields.long();
  const seq = fields.long();
  const threadSeq = fields.long();
  const mode = fields.text();
  const event = fields.text();
  const namespace = fields.text();
  const data = fields.bytes();
  const isEnd = fields.flag();
  if (fields.isOverrun) return undefined;
  const runId = uuidAt(framed, runIdAt);
  const createdAtMicros = new Fields(framed, createdAt).long();
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

  text(): string {
    return this.bytes().toString('utf8');
  }

  flag(): boolean {
    return this.#framed[this.#at++] === 1;
  }
}
