import { FairSlots } from '../fairness/fair-slots.ts';
import type { TenantContext } from '../fairness/tenant-context.ts';

/**
 * Shares ClickHouse fairly between organisations.
 *
 * Slots alone are not enough, because running queries of one organisation would still compete for the CPU with a new
 * query of another organisation. Therefore, a query gets a higher priority if its organisation runs fewer queries than
 * another organisation. While this query runs, ClickHouse pauses queries with a lower priority. It pauses them for at
 * most one second per block, so that they still make progress. If only one organisation sends queries, none of them
 * gets the higher priority.
 *
 * An organisation that continuously sends one query after another would pause the queries of the other organisations
 * all the time. Therefore, the prioritised time of an organisation is limited to its share of the last seconds. Beyond
 * this limit, its queries run with the same priority as those of the other organisations.
 */
export class QuerySlots {
  readonly #slots: FairSlots;
  /** Prioritised query time by organisation, in milliseconds. Decays exponentially. */
  readonly #prioritised = new Map<string, { ms: number; atMs: number }>();
  readonly #nowMs: () => number;

  /** @param nowMs a monotonic clock. */
  constructor(slots: number, nowMs = () => performance.now()) {
    this.#nowMs = nowMs;
    const extraSlots = Math.ceil(slots / 2);
    this.#slots = new FairSlots({ name: 'clickhouse-queries', slots, extraSlots, maxWaiting: 1_000 });
  }

  /**
   * Waits for a slot for the organisation, and then runs its query.
   *
   * @param maxWaitMs maximum time to wait for the slot.
   * @param work runs the query with the given value of ClickHouse's setting `priority`.
   * @throws OVERLOADED; the reason of `signal`; the errors of `work`.
   */
  async run<Result>(
    { organizationId }: TenantContext,
    { maxWaitMs, signal }: { readonly maxWaitMs: number; readonly signal: AbortSignal | undefined },
    work: (priority: string) => Promise<Result>,
  ): Promise<Result> {
    const slot = await this.#slots.acquire(organizationId, { maxWaitMs, signal });
    const startedAtMs = this.#nowMs();
    const isPrioritised = slot.isUnderShare && this.#prioritisedMs(organizationId) < decayMs / slot.tenants;
    try {
      return await work(isPrioritised ? '1' : '2');
    } finally {
      slot.release();
      if (isPrioritised) this.#addPrioritised(organizationId, this.#nowMs() - startedAtMs);
    }
  }

  #prioritisedMs(organizationId: string): number {
    const last = this.#prioritised.get(organizationId);
    return last === undefined ? 0 : last.ms * Math.exp((last.atMs - this.#nowMs()) / decayMs);
  }

  #addPrioritised(organizationId: string, ms: number): void {
    const sum = this.#prioritisedMs(organizationId) + ms;
    const nowMs = this.#nowMs();
    this.#prioritised.delete(organizationId);
    this.#prioritised.set(organizationId, { ms: sum, atMs: nowMs });
    for (const [id, { atMs }] of this.#prioritised) {
      if (nowMs - atMs < 10 * decayMs) break;
      this.#prioritised.delete(id);
    }
  }
}

/** Time constant of the exponential decay of prioritised time. */
const decayMs = 10_000;
