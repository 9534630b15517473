import { decodeStringBytes } from './text.ts';

/**
 * A fixed set of keys for lookups in JSON text; a lookup of an unknown key allocates no string.
 * `__proto__` and similar keys have no special meaning.
 */
export class KeySet<K extends string = string> {
  readonly keys: readonly K[];
  readonly #encoded: readonly Buffer[];
  /** Positions of the keys, by their length in UTF-8. */
  readonly #byLength = new Map<number, number[]>();

  constructor(keys: readonly K[]) {
    this.keys = keys;
    this.#encoded = keys.map((key) => Buffer.from(key));
    for (const [position, { length }] of this.#encoded.entries()) {
      const positions = this.#byLength.get(length);
      if (positions === undefined) this.#byLength.set(length, [position]);
      else positions.push(position);
    }
  }

  /**
   * Returns the position in {@link keys} of the key in `bytes[start, end)`, without its quotes; -1 if it is not in the
   * set.
   */
  find(bytes: Buffer, start: number, end: number): number {
    const positions = this.#byLength.get(end - start);
    if (positions !== undefined) {
      for (const position of positions) if (isSame(this.#encoded[position]!, bytes, start)) return position;
    }
    for (let index = start; index < end; index++) {
      if (bytes[index] === 0x5c) {
        return (this.keys as readonly string[]).indexOf(decodeStringBytes(bytes, start - 1, end + 1));
      }
    }
    return -1;
  }
}

function isSame(key: Buffer, bytes: Buffer, start: number): boolean {
  for (let at = 0; at < key.length; at++) if (key[at] !== bytes[start + at]) return false;
  return true;
}
