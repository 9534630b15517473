import { randomInt } from 'node:crypto';

interface RecentMapShape {
  /** The map holds at least this number of entries, and at most twice as many. */
  readonly minEntries: number;
  /** Size of a key, in words of 32 bits. */
  readonly keyWords: number;
  /** Numbers in a value. */
  readonly valueNumbers: number;
}

/**
 * A map of the newest entries. Two generations bound the count without a linked list: when the current one is full, it
 * replaces the old one.
 *
 * Keys are compared in full. Keys and values are in typed arrays, because as strings and objects, hundreds of thousands
 * of entries that each live for seconds would take most of their cost in garbage collection.
 */
export class RecentMap {
  #current: Generation;
  #old: Generation;

  constructor(shape: RecentMapShape) {
    this.#current = new Generation(shape);
    this.#old = new Generation(shape);
  }

  /** Returns element `number` of the value for the key at `keys[at]`; undefined if the key is unknown. */
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

/** Keys that clients choose must not be able to share slots on purpose. */
const seed = randomInt(2 ** 32);

/** A hash table with open addressing. Entries are appended; slots refer to them by their number plus one. */
class Generation {
  readonly #shape: RecentMapShape;
  readonly #keys: Uint32Array;
  readonly #values: Float64Array;
  readonly #slots: Uint32Array;
  #size = 0;

  constructor(shape: RecentMapShape) {
    const { minEntries, keyWords, valueNumbers } = shape;
    this.#shape = shape;
    // The system provides the memory of these arrays as entries are written.
    this.#keys = new Uint32Array(minEntries * keyWords);
    this.#values = new Float64Array(minEntries * valueNumbers);
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
    return entry === 0 ? undefined : this.#values[(entry - 1) * this.#shape.valueNumbers + number];
  }

  set(keys: Uint32Array, at: number, value: readonly number[]): void {
    const { keyWords, valueNumbers } = this.#shape;
    const slot = this.#findSlot(keys, at);
    if (this.#slots[slot] === 0) {
      for (let word = 0; word < keyWords; word++) this.#keys[this.#size * keyWords + word] = keys[at + word] as number;
      this.#slots[slot] = ++this.#size;
    }
    this.#values.set(value, ((this.#slots[slot] as number) - 1) * valueNumbers);
  }

  /** Returns the slot of the key, or the free slot where it belongs. */
  #findSlot(keys: Uint32Array, at: number): number {
    const { keyWords } = this.#shape;
    const mask = this.#slots.length - 1;
    let hash = seed;
    for (let word = at; word < at + keyWords; word++) {
      hash = Math.imul(hash ^ (keys[word] as number), 0x9e3779b1);
      hash ^= hash >>> 15;
    }
    for (let slot = hash & mask; ; slot = (slot + 1) & mask) {
      const entry = this.#slots[slot] as number;
      if (entry === 0 || this.#isKeyAt(entry - 1, keys, at)) return slot;
    }
  }

  #isKeyAt(entry: number, keys: Uint32Array, at: number): boolean {
    const { keyWords } = this.#shape;
    for (let word = 0; word < keyWords; word++)
      if (this.#keys[entry * keyWords + word] !== keys[at + word]) return false;
    return true;
  }
}
