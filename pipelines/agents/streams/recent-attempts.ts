/**
 * Remembers the latest attempt of the most recently seen runs. Events of an attempt are invalid after the first event
 * of a later attempt, because the worker of the earlier attempt had lost the run.
 */
export class RecentAttempts {
  readonly #maxRuns: number;
  readonly #latest = new Map<string, number>();

  constructor(maxRuns: number) {
    this.#maxRuns = maxRuns;
  }

  /** Records an event; call it in log order. @returns whether the event is valid. */
  observe(runId: string, attempt: number): boolean {
    const latest = this.#latest.get(runId);
    if (latest !== undefined && attempt < latest) return false;
    if (latest === attempt) return true;
    this.#latest.delete(runId);
    this.#latest.set(runId, attempt);
    if (this.#latest.size > this.#maxRuns) {
      for (const oldest of this.#latest.keys()) {
        this.#latest.delete(oldest);
        break;
      }
    }
    return true;
  }
}
