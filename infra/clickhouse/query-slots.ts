import { FairSlots } from '../fairness/fair-slots.ts';
import type { TenantContext } from '../fairness/tenant-context.ts';

/**
 * Shares ClickHouse between organisations.
 *
 * A slot alone is no share: queries of one organisation that run already would take the processor from one that begins. So a query
 * of an organisation that runs fewer queries than another one gets a higher priority: ClickHouse pauses queries of lower priority
 * while it runs, for at most a second a block, so that they go on slowly. Who is alone never gets it, so nothing changes then.
 *
 * An organisation that sends one query after another would pause the others for ever. So its time with priority is bounded by its
 * share of the last seconds; beyond that its queries run beside the others with equal priority.
 */
export class QuerySlots {
  readonly #slots: FairSlots;
  /** Time that queries of an organisation ran with priority, in milliseconds; it decays. */
  readonly #prioritised = new Map<string, { ms: number; atMs: number }>();
  /** Maximum number of queries at once. */
  readonly max: number;
  readonly #nowMs: () => number;

  /** @param nowMs a monotonic clock. */
  constructor(slots: number, nowMs = () => performance.now()) {
    this.#nowMs = nowMs;
    const overdraft = Math.ceil(slots / 2);
    this.max = slots + overdraft;
    this.#slots = new FairSlots({ name: 'clickhouse-queries', slots, overdraft, maxWaiting: 1_000 });
  }

  /**
   * Runs a query of an organisation when it has a slot.
   *
   * @param maxWaitMs how long it waits for the slot.
   * @param work gets the priority of its query, in ClickHouse's setting of that name.
   * @throws OVERLOADED; the reason of `signal`; what `work` throws.
   */
  async run<Result>(
    { organizationId }: TenantContext,
    { maxWaitMs, signal }: { readonly maxWaitMs: number; readonly signal: AbortSignal | undefined },
    work: (priority: string) => Promise<Result>,
  ): Promise<Result> {
    const slot = await this.#slots.acquire(organizationId, { maxWaitMs, signal });
    const startedAtMs = this.#nowMs();
    const isFirst = slot.underShare && this.#prioritisedMs(organizationId) < windowMs / slot.tenants;
    try {
      return await work(isFirst ? '1' : '2');
    } finally {
      slot.release();
      if (isFirst) this.#addPrioritised(organizationId, this.#nowMs() - startedAtMs);
    }
  }

  #prioritisedMs(organizationId: string): number {
    const last = this.#prioritised.get(organizationId);
    return last === undefined ? 0 : last.ms * Math.exp((last.atMs - this.#nowMs()) / windowMs);
  }

  #addPrioritised(organizationId: string, ms: number): void {
    const sum = this.#prioritisedMs(organizationId) + ms;
    const nowMs = this.#nowMs();
    this.#prioritised.delete(organizationId);
    this.#prioritised.set(organizationId, { ms: sum, atMs: nowMs });
    for (const [id, { atMs }] of this.#prioritised) {
      if (nowMs - atMs < 10 * windowMs) break;
      this.#prioritised.delete(id);
    }
  }
}

/** Decay of the time with priority. */
const windowMs = 10_000;
