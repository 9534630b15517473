/**
 * A map of the newest entries: at least `minEntries` and at most twice as many. Two generations bound the count without
 * a linked list: when the young one is full, it replaces the old one.
 */
export class RecentMap<Value> {
  readonly #minEntries: number;
  #current = new Map<string, Value>();
  #old = new Map<string, Value>();

  constructor(minEntries: number) {
    this.#minEntries = minEntries;
  }

  get(key: string): Value | undefined {
    return this.#current.get(key) ?? this.#old.get(key);
  }

  set(key: string, value: Value): void {
    if (this.#current.size >= this.#minEntries) {
      this.#old = this.#current;
      this.#current = new Map();
    }
    this.#current.set(key, value);
  }
}
