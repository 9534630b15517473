/**
 * Bytes of one run's events that are on their way to the log.
 *
 * Invariant: what is on the way is at most the limit, or a single event. 1. An event is sent when there is room before it. 2. The front
 * says how many bytes the log has taken. 3. That makes room, and who waits goes on. A front that dies takes this process with it.
 */
export class RunCredit {
  readonly #limitBytes: number;
  #onTheWayBytes = 0;
  #goOn: (() => void) | undefined;

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes;
  }

  /** Undefined where there is room; else resolves when there is. */
  room(): Promise<void> | undefined {
    if (this.#onTheWayBytes < this.#limitBytes) return undefined;
    return new Promise((resolve) => {
      this.#goOn = resolve;
    });
  }

  sent(bytes: number): void {
    this.#onTheWayBytes += bytes;
  }

  taken(bytes: number): void {
    this.#onTheWayBytes -= bytes;
    if (this.#onTheWayBytes < this.#limitBytes) this.letGo();
  }

  /** Whoever waits goes on: the run is to end. */
  letGo(): void {
    const goOn = this.#goOn;
    this.#goOn = undefined;
    goOn?.();
  }
}
