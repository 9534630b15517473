/**
 * Which attempt at each run is the latest seen, of so many runs that were seen last. What an attempt still writes after the
 * first event of a higher one does not count: its worker had lost the run.
 */
export class RecentAttempts {
  readonly #limitRuns: number;
  readonly #latest = new Map<string, number>();

  constructor(limitRuns: number) {
    this.#limitRuns = limitRuns;
  }

  /** Takes notice of an event in the order of the log. @returns whether it counts. */
  counts(runId: string, attempt: number): boolean {
    const latest = this.#latest.get(runId);
    if (latest !== undefined && attempt < latest) return false;
    if (latest === attempt) return true;
    this.#latest.delete(runId);
    this.#latest.set(runId, attempt);
    if (this.#latest.size > this.#limitRuns) {
      for (const oldest of this.#latest.keys()) {
        this.#latest.delete(oldest);
        break;
      }
    }
    return true;
  }
}
