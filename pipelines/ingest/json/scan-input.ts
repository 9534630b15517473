import { isUtf8 } from 'node:buffer';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';

export interface ScanOptions {
  /** Name of the text in errors: the name of a part, or `the body`. */
  readonly part: string;
  /** Maximum nesting depth; a scalar has depth 0. */
  readonly maxDepth: number;
  /** Setting that determines `maxDepth`; named in the error. */
  readonly limit?: string | undefined;
  /** Value of this setting, if it differs from `maxDepth`. */
  readonly limitDepth?: number | undefined;
  /**
   * Counts the values below the outermost value: the scan calls `add` for each comma, object and array. An error thrown
   * by `add` ends the scan.
   */
  readonly values?: { add(): void } | undefined;
}

/** Formats a byte for an error: `'x'` if it is printable, `byte 0x1f` otherwise. */
function formatByte(byte: number): string {
  const isPrintable = byte > 0x20 && byte < 0x7f;
  return isPrintable ? `'${String.fromCharCode(byte)}'` : `byte 0x${byte.toString(16).padStart(2, '0')}`;
}

/**
 * Returns the index of the first byte of the first ill-formed sequence between `start` and `end`; `end` if there is
 * none. The search is exact but slow, so call it only after `isUtf8` has returned false. Source: the Unicode standard,
 * table of well-formed sequences.
 */
export function findInvalidUtf8(bytes: Uint8Array, start: number, end: number): number {
  let index = start;
  while (index < end) {
    const lead = bytes[index]!;
    if (lead < 0x80) {
      index++;
      continue;
    }
    const length = lead >= 0xc2 && lead <= 0xdf ? 2 : (lead & 0xf0) === 0xe0 ? 3 : lead >= 0xf0 && lead <= 0xf4 ? 4 : 0;
    if (length === 0 || index + length > end) return index;
    const second = bytes[index + 1]!;
    // The range of the second byte excludes overlong forms, surrogates and code points above U+10FFFF.
    const lowest = lead === 0xe0 ? 0xa0 : lead === 0xf0 ? 0x90 : 0x80;
    const highest = lead === 0xed ? 0x9f : lead === 0xf4 ? 0x8f : 0xbf;
    if (second < lowest || second > highest) return index;
    for (let next = index + 2; next < index + length; next++) {
      if ((bytes[next]! & 0xc0) !== 0x80) return index;
    }
    index += length;
  }
  return end;
}

/** The input of a scan: the text in `bytes` from `start` to `end`, and methods that throw the errors of the scan. */
export class ScanInput {
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
      const offset = findInvalidUtf8(bytes, start, end) - start;
      throw runlakeError('INVALID_UTF8', { part: options.part, offset });
    }
    if (end - start >= 3 && bytes[start] === 0xef && bytes[start + 1] === 0xbb && bytes[start + 2] === 0xbf) {
      this.fail(start, 'a byte order mark is not JSON');
    }
  }

  /** `bytes` viewed as 32-bit words; created on first use. */
  get words(): Int32Array {
    this.#words ??= new Int32Array(this.bytes.buffer, 0, this.bytes.buffer.byteLength >>> 2);
    return this.#words;
  }

  fail(index: number, reason: string): never {
    throw runlakeError('INVALID_JSON', { part: this.#options.part, offset: index - this.start, reason });
  }

  /** Throws INVALID_JSON for the byte at `index`, or for the end of the text. */
  failUnexpected(index: number, expected: string): never {
    if (index >= this.end) this.fail(this.end, `the text ends where ${expected} is expected`);
    return this.fail(index, `${formatByte(this.bytes[index]!)} where ${expected} is expected`);
  }

  failTooDeep(): never {
    const { part, maxDepth, limitDepth = maxDepth, limit = 'the limit of all JSON bodies' } = this.#options;
    throw runlakeError('TOO_DEEP', { part, limitDepth, limit });
  }
}
