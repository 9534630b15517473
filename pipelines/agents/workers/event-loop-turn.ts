const longestTurnMs = 20;

/**
 * What graphs have buffered is read without the event loop turning once. Whoever reads much of it lets the loop turn now and then, for
 * all in this process together: so what was read leaves it, and its beat is heard.
 */
export class EventLoopTurn {
  #startedAtMs = performance.now();
  #next: Promise<void> | undefined;

  /** Undefined while the turn is short, else resolves in the next one. */
  ifLong(): Promise<void> | undefined {
    if (this.#next === undefined && performance.now() - this.#startedAtMs < longestTurnMs) return undefined;
    this.#next ??= new Promise((resolve) => {
      setImmediate(() => {
        this.#startedAtMs = performance.now();
        this.#next = undefined;
        resolve();
      });
    });
    return this.#next;
  }
}
