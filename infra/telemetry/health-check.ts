/** A part that a process depends on, and a way to ask whether it works. */
export interface HealthCheck {
  /** As it appears in `/ready`: `clickhouse`, `postgres`, `event_log`, … */
  readonly name: string;
  /** Resolves where the part works now; rejects with an error of the catalogue where it does not. */
  check(): Promise<void>;
}
