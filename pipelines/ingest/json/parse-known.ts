import { skipColon, skipString, skipValue } from './find.ts';
import { type KeySet, skipSpace } from './scan-any.ts';
import { decodeStringBytes } from './scan-string.ts';

export interface ParseLimits {
  /** Maximum nesting depth; values that are nested deeper are read as null. */
  readonly maxDepth: number;
  /** Called for each member of an object with the number of members so far; may throw to enforce a limit. */
  readonly onMember: (count: number) => void;
}

/** Matches integers that may lose precision as a double: 16 to 20 digits. No 64-bit integer has more than 20 digits. */
const longInteger = /^-?\d{16,20}$/;

/**
 * Parses the validated JSON text `bytes[start, end)`. Skips members whose keys are not in `keys`, so that the length of
 * the text bounds the cost, even if most keys are unknown. Otherwise the result is the same as that of `JSON.parse`,
 * except that integers of 16 to 20 digits become bigints.
 */
export function parseKnownMembers(
  bytes: Buffer,
  start: number,
  end: number,
  keys: KeySet,
  limits: ParseLimits,
): unknown {
  return new KnownMemberReader(bytes, start, end, keys, limits).value(0);
}

class KnownMemberReader {
  readonly #bytes: Buffer;
  readonly #end: number;
  readonly #keys: KeySet;
  readonly #limits: ParseLimits;
  #index: number;

  constructor(bytes: Buffer, start: number, end: number, keys: KeySet, limits: ParseLimits) {
    this.#bytes = bytes;
    this.#index = start;
    this.#end = end;
    this.#keys = keys;
    this.#limits = limits;
  }

  value(depth: number): unknown {
    const bytes = this.#bytes;
    const start = this.#index;
    const first = bytes[start]!;
    if (first === 0x22) {
      this.#index = skipString(bytes, start);
      return decodeStringBytes(bytes, start, this.#index);
    }
    if (first === 0x7b || first === 0x5b) {
      if (depth < this.#limits.maxDepth) return first === 0x7b ? this.#object(depth) : this.#array(depth);
      this.#index = skipValue(bytes, start, this.#end);
      return null;
    }
    this.#index = skipValue(bytes, start, this.#end);
    if (first === 0x74) return true;
    if (first === 0x66) return false;
    if (first === 0x6e) return null;
    const number = bytes.toString('latin1', start, this.#index);
    return number.length >= 16 && longInteger.test(number) ? BigInt(number) : Number(number);
  }

  #object(depth: number): Record<string, unknown> {
    const bytes = this.#bytes;
    const object: Record<string, unknown> = {};
    let count = 0;
    this.#index = skipSpace(bytes, this.#index + 1, this.#end);
    while (bytes[this.#index] === 0x22) {
      this.#limits.onMember(++count);
      const keyStart = this.#index;
      const keyEnd = skipString(bytes, keyStart);
      const position = this.#keys.find(bytes, keyStart + 1, keyEnd - 1);
      this.#index = skipColon(bytes, keyEnd, this.#end);
      if (position < 0) this.#index = skipValue(bytes, this.#index, this.#end);
      else object[this.#keys.keys[position]!] = this.value(depth + 1);
      this.#nextChild();
    }
    this.#index++;
    return object;
  }

  #array(depth: number): unknown[] {
    const bytes = this.#bytes;
    const array: unknown[] = [];
    this.#index = skipSpace(bytes, this.#index + 1, this.#end);
    while (bytes[this.#index] !== 0x5d) {
      array.push(this.value(depth + 1));
      this.#nextChild();
    }
    this.#index++;
    return array;
  }

  /** Moves from the end of a value to the next key or value, or to the end of the container. */
  #nextChild(): void {
    this.#index = skipSpace(this.#bytes, this.#index, this.#end);
    if (this.#bytes[this.#index] === 0x2c) this.#index = skipSpace(this.#bytes, this.#index + 1, this.#end);
  }
}
