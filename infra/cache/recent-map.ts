import { randomInt } from 'node:crypto';

interface RecentMapShape {
  /** Minimum capacity. The map holds at least this number of the newest entries, and at most twice as many. */
  readonly minEntries: number;
  /** Size of a key in 32-bit words. */
  readonly wordsPerKey: number;
  readonly numbersPerValue: number;
}

/**
 * A map of the newest entries. It has two generations, which limit the number of entries without a linked list: when
 * the current generation is full, it replaces the old generation.
 *
 * Keys are compared in full. Keys and values are stored in typed arrays. Otherwise most of the cost would be garbage
 * collection of the strings and objects of hundreds of thousands of entries that each live for seconds.
 */
export class RecentMap {
  #current: Generation;
  #old: Generation;

  constructor(shape: RecentMapShape) {
    this.#current = new Generation(shape);
    this.#old = new Generation(shape);
  }

  /**
   * Returns element `number` of the value for the key at `keys[at]`. Returns undefined if the map does not contain the
   * key.
   */
  get(keys: Uint32Array, at: number, number = 0): number | undefined {
    return this.#current.get(keys, at, number) ?? this.#old.get(keys, at, number);
  }

  /** Sets the value for the key at `keys[at]`. */
  set(keys: Uint32Array, at: number, ...value: readonly number[]): void {
    if (this.#current.isFull) {
      [this.#current, this.#old] = [this.#old, this.#current];
      this.#current.clear();
    }
    this.#current.set(keys, at, value);
  }
}

/** Random seed of the hash, so that clients, which choose the keys, cannot cause collisions on purpose. */
const seed = randomInt(2 ** 32);

/**
 * A hash table with open addressing. Entries are appended to the arrays; a slot contains the number of its entry plus
 * one.
 */
class Generation {
  readonly #shape: RecentMapShape;
  readonly #keys: Uint32Array;
  readonly #values: Float64Array;
  readonly #slots: Uint32Array;
  #size = 0;

  constructor(shape: RecentMapShape) {
    const { minEntries, wordsPerKey, numbersPerValue } = shape;
    this.#shape = shape;
    // The operating system allocates the memory of these arrays only as entries are written.
    this.#keys = new Uint32Array(minEntries * wordsPerKey);
    this.#values = new Float64Array(minEntries * numbersPerValue);
    this.#slots = new Uint32Array(2 ** Math.ceil(Math.log2(minEntries * 2)));
  }

  get isFull(): boolean {
    return this.#size >= this.#shape.minEntries;
  }

  clear(): void {
    this.#slots.fill(0);
    this.#size = 0;
  }

  get(keys: Uint32Array, at: number, number: number): number | undefined {
    const entry = this.#slots[this.#findSlot(keys, at)] as number;
    return entry === 0 ? undefined : this.#values[(entry - 1) * this.#shape.numbersPerValue + number];
  }

  set(keys: Uint32Array, at: number, value: readonly number[]): void {
    const { wordsPerKey, numbersPerValue } = this.#shape;
    const slot = this.#findSlot(keys, at);
    if (this.#slots[slot] === 0) {
      for (let word = 0; word < wordsPerKey; word++)
        this.#keys[this.#size * wordsPerKey + word] = keys[at + word] as number;
      this.#slots[slot] = ++this.#size;
    }
    this.#values.set(value, ((this.#slots[slot] as number) - 1) * numbersPerValue);
  }

  /** Returns the slot of the key or, if the key is missing, the free slot for it. */
  #findSlot(keys: Uint32Array, at: number): number {
    const { wordsPerKey } = this.#shape;
    const mask = this.#slots.length - 1;
    let hash = seed;
    for (let word = at; word < at + wordsPerKey; word++) {
      hash = Math.imul(hash ^ (keys[word] as number), 0x9e3779b1);
      hash ^= hash >>> 15;
    }
    for (let slot = hash & mask; ; slot = (slot + 1) & mask) {
      const entry = this.#slots[slot] as number;
      if (entry === 0 || this.#isKeyAt(entry - 1, keys, at)) return slot;
    }
  }

  #isKeyAt(entry: number, keys: Uint32Array, at: number): boolean {
    const { wordsPerKey } = this.#shape;
    for (let word = 0; word < wordsPerKey; word++)
      if (this.#keys[entry * wordsPerKey + word] !== keys[at + word]) return false;
    return true;
  }
}
