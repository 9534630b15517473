import { scanColon, skipSpace } from './scan-any.ts';
import type { ScanOrigin } from './scan-origin.ts';
import { scanString } from './scan-string.ts';

const openBrace = 0x7b;
const closeBrace = 0x7d;
const closeBracket = 0x5d;
const comma = 0x2c;
const quote = 0x22;

/**
 * Iterates over the direct children of one object or array and validates the text between them. The caller scans each
 * value itself, and may yield to the event loop between two values.
 */
export class ChildCursor {
  /** Range of the key, including its quotes; empty in an array. */
  keyStart = 0;
  keyEnd = 0;
  /** Start of the current value; after the last value, the end of the container. */
  at: number;
  readonly #origin: ScanOrigin;
  readonly #bytes: Buffer;
  readonly #end: number;
  readonly #isObject: boolean;
  readonly #closing: number;

  /** @throws TOO_DEEP if the container, which begins at `first` at nesting depth `depth`, is itself too deep. */
  constructor(origin: ScanOrigin, first: number, depth: number) {
    if (depth >= origin.maxDepth) origin.tooDeep();
    origin.values?.add();
    this.#origin = origin;
    this.#bytes = origin.bytes;
    this.#end = origin.end;
    this.#isObject = origin.bytes[first] === openBrace;
    this.#closing = this.#isObject ? closeBrace : closeBracket;
    this.at = first;
  }

  /** Moves to the first value. Returns false if the container is empty. @throws INVALID_JSON */
  first(): boolean {
    const index = skipSpace(this.#bytes, this.at + 1, this.#end);
    if (index < this.#end && this.#bytes[index] === this.#closing) return this.#close(index);
    if (this.#isObject) this.#key(index, "a key or '}'");
    else this.#item(index, "a value or ']'");
    return true;
  }

  /** Moves to the value after the one that ended at `valueEnd`. Returns false at the end. @throws INVALID_JSON */
  next(valueEnd: number): boolean {
    const end = this.#end;
    let index = skipSpace(this.#bytes, valueEnd, end);
    const byte = index < end ? this.#bytes[index]! : 0;
    if (byte === this.#closing) return this.#close(index);
    if (byte !== comma) this.#origin.unexpected(index, this.#isObject ? "',' or '}'" : "',' or ']'");
    this.#origin.values?.add();
    index = skipSpace(this.#bytes, index + 1, end);
    if (this.#isObject) this.#key(index, 'a key');
    else this.#item(index, 'a value');
    return true;
  }

  #close(index: number): false {
    this.at = index + 1;
    return false;
  }

  #key(index: number, expected: string): void {
    if (index >= this.#end || this.#bytes[index] !== quote) this.#origin.unexpected(index, expected);
    this.keyStart = index;
    this.keyEnd = scanString(this.#origin, index + 1);
    this.at = scanColon(this.#origin, this.keyEnd);
  }

  #item(index: number, expected: string): void {
    if (index >= this.#end) this.#origin.unexpected(index, expected);
    this.at = index;
  }
}
