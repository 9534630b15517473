import { isUtf8 } from 'node:buffer';
import { fault } from '../../../infra/errors/runlake-error.ts';
import { invalidUtf8Offset } from './utf8.ts';

export interface ScanOptions {
  /** What the text is called in faults: the name of a part, or `the body`. */
  readonly part: string;
  /** Deepest nesting that is taken; a scalar has depth 0. */
  readonly maxDepth: number;
  /** The setting that `maxDepth` comes from, for the fault. */
  readonly limit?: string | undefined;
  /** The value of that setting, where it is not `maxDepth` itself. */
  readonly limitDepth?: number | undefined;
  /** Told of about every value below the outermost: each comma, object and list. What it throws ends the scan. */
  readonly values?: { add(): void } | undefined;
}

/** The text under a scan: its bytes from `start` to `end`, and how to complain about them. */
export class ScanOrigin {
  readonly bytes: Buffer;
  readonly start: number;
  readonly end: number;
  readonly maxDepth: number;
  readonly values: { add(): void } | undefined;
  readonly #options: ScanOptions;
  #words: Int32Array | undefined;

  /** @throws INVALID_UTF8, and INVALID_JSON for a byte order mark. */
  constructor(bytes: Buffer, start: number, end: number, options: ScanOptions) {
    this.bytes = bytes;
    this.start = start;
    this.end = end;
    this.maxDepth = options.maxDepth;
    this.values = options.values;
    this.#options = options;
    if (!isUtf8(bytes.subarray(start, end))) {
      const offset = invalidUtf8Offset(bytes, start, end) - start;
      throw fault('INVALID_UTF8', { part: options.part, offset });
    }
    if (end - start >= 3 && bytes[start] === 0xef && bytes[start + 1] === 0xbb && bytes[start + 2] === 0xbf) {
      this.fail(start, 'a byte order mark is not JSON');
    }
  }

  /** The memory behind `bytes` in words of four bytes; made when the first long string asks for it. */
  get words(): Int32Array {
    this.#words ??= new Int32Array(this.bytes.buffer, 0, this.bytes.buffer.byteLength >>> 2);
    return this.#words;
  }

  fail(index: number, reason: string): never {
    throw fault('INVALID_JSON', { part: this.#options.part, offset: index - this.start, reason });
  }

  /** Complains about the byte at `index`, or about the end of the text. */
  unexpected(index: number, expected: string): never {
    if (index >= this.end) this.fail(this.end, `the text ends where ${expected} is expected`);
    return this.fail(index, `${nameByte(this.bytes[index]!)} where ${expected} is expected`);
  }

  tooDeep(): never {
    const { part, maxDepth, limitDepth = maxDepth, limit = 'RUNLAKE_MAX_JSON_DEPTH' } = this.#options;
    throw fault('TOO_DEEP', { part, limitDepth, limit });
  }
}

/** A byte as a reader knows it: `'x'` where it is printable, `0x1f` otherwise. */
export function nameByte(byte: number): string {
  const isPrintable = byte > 0x20 && byte < 0x7f;
  return isPrintable ? `'${String.fromCharCode(byte)}'` : `byte 0x${byte.toString(16).padStart(2, '0')}`;
}
