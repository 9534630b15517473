/** Health check of a part that the process depends on. */
export interface HealthCheck {
  /** Name in `/ready`: `clickhouse`, `postgres`, `event_log`, … */
  readonly name: string;
  /** Resolves if the part works; rejects with an error of the catalogue if it does not. */
  check(): Promise<void>;
}
