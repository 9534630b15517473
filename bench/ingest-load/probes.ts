import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { polled } from './stored.ts';

/** Queries accepted runs until they are visible, all of them with one query at a time. */
export class Probes {
  readonly #clickhouse: ClickHouse;
  readonly #tenantId: string;
  readonly #lookEveryMs: number;
  readonly #waiting = new Map<string, number>();
  readonly #times: number[] = [];
  readonly #looking: Promise<void>;
  #last = false;

  constructor(clickhouse: ClickHouse, tenantId: string, lookEveryMs: number) {
    this.#clickhouse = clickhouse;
    this.#tenantId = tenantId;
    this.#lookEveryMs = lookEveryMs;
    this.#looking = this.#look();
  }

  accepted(id: string): void {
    this.#waiting.set(id, performance.now());
  }

  /** Ends the measurement. @returns milliseconds from acceptance of each run to the query that found it. */
  async finish(): Promise<readonly number[]> {
    this.#last = true;
    await this.#looking;
    return this.#times;
  }

  async #look(): Promise<void> {
    await polled('probes to be visible', this.#lookEveryMs, async () => {
      const ids = [...this.#waiting.keys()];
      const found =
        ids.length === 0
          ? []
          : await this.#clickhouse.query<{ id: string }>({
              name: 'bench-look',
              sql: 'SELECT DISTINCT id FROM run_locator WHERE tenant_id = {tenant:UUID} AND id IN {ids:Array(UUID)}',
              params: { tenant: this.#tenantId, ids },
            });
      const now = performance.now();
      for (const { id } of found) {
        this.#times.push(now - (this.#waiting.get(id) ?? now));
        this.#waiting.delete(id);
      }
      return this.#last && this.#waiting.size === 0;
    });
  }
}
