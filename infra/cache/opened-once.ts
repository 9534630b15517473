/** Opens a value at its first use and shares it. A failed attempt is not kept: the next use opens again. */
export class OpenedOnce<Value> {
  readonly #open: () => Promise<Value>;
  #opened: Promise<Value> | undefined;

  constructor(open: () => Promise<Value>) {
    this.#open = open;
  }

  /** @throws the error of the attempt, which concurrent callers share. */
  get(): Promise<Value> {
    this.#opened ??= this.#open().catch((error: unknown) => {
      this.#opened = undefined;
      throw error;
    });
    return this.#opened;
  }

  /** Returns the value if it was opened. Waits for an attempt in progress; undefined if it fails. */
  async peek(): Promise<Value | undefined> {
    return this.#opened?.catch(() => undefined);
  }
}
