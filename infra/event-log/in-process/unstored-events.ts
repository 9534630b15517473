/**
 * The events of each organisation that the in-process log has acknowledged and its consumers have not stored yet, and the
 * reads that wait for them.
 */
import type { PartitionDelivery } from './partition-delivery.ts';

/** The events of a request in one partition. */
interface UnstoredEvents {
  readonly bytes: number;
  readonly delivery: PartitionDelivery;
}

interface Tenant {
  bytes: number;
  readonly events: Set<UnstoredEvents>;
}

/** Bytes of the events of each organisation that are not stored, including those that are not appended yet. */
export class PendingBytes {
  readonly #maxBytes: number;
  readonly #bytes = new Map<string | undefined, number>();
  total = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  add(tenantId: string | undefined, bytes: number): void {
    this.total += bytes;
    const sum = (this.#bytes.get(tenantId) ?? 0) + bytes;
    if (sum > 0) this.#bytes.set(tenantId, sum);
    else this.#bytes.delete(tenantId);
  }

  /**
   * Returns whether more events of an organisation may be added. Beyond `maxBytes`, an organisation may add events up to its
   * share, `maxBytes` divided by the number of organisations with events, from an additional quarter. If there are no
   * events, those of any size may be added.
   */
  isWithinLimit(tenantId: string | undefined, bytes: number): boolean {
    const total = this.total + bytes;
    if (this.total === 0 || total <= this.#maxBytes) return true;
    const own = this.#bytes.get(tenantId) ?? 0;
    const share = this.#maxBytes / (this.#bytes.size + (own === 0 ? 1 : 0));
    return own + bytes <= share && total <= 1.25 * this.#maxBytes;
  }
}

/** Maximum time for which a read waits. */
const maxReadWaitMs = 5_000;

export class UnstoredEventsByTenant {
  readonly #tenants = new Map<string | undefined, Tenant>();
  readonly #waitingReads = new Set<() => void>();

  /** Adds events. Returns a function that removes them when they are stored. */
  add(tenantId: string | undefined, events: UnstoredEvents): () => void {
    const tenant = this.#tenants.get(tenantId) ?? { bytes: 0, events: new Set() };
    this.#tenants.set(tenantId, tenant);
    tenant.bytes += events.bytes;
    tenant.events.add(events);
    return () => {
      tenant.bytes -= events.bytes;
      tenant.events.delete(events);
      if (tenant.events.size === 0) this.#tenants.delete(tenantId);
    };
  }

  /** Returns the size of the events of an organisation in bytes. */
  sumBytes(tenantId: string | undefined): number {
    return this.#tenants.get(tenantId)?.bytes ?? 0;
  }

  /** Must be called after a batch was stored or rejected. */
  checkReads(): void {
    for (const check of this.#waitingReads) check();
  }

  /**
   * Resolves when the current events of an organisation, and those of Runlake itself, are stored. Resolves earlier when a
   * batch is rejected, and after five seconds. While it waits, partitions do not gather events.
   */
  async waitUntilStored(tenantId: string): Promise<void> {
    const tenants = [tenantId, undefined].flatMap((id) => this.#tenants.get(id) ?? []);
    const waited = tenants.flatMap((tenant) => [...tenant.events].map((events) => ({ tenant, events })));
    const deliveries = new Set(waited.map(({ events }) => events.delivery));
    const isOver = () =>
      [...deliveries].some(({ isRejected }) => isRejected) ||
      waited.every(({ tenant, events }) => !tenant.events.has(events));
    if (isOver()) return;
    await new Promise<void>((resolve) => {
      const end = () => {
        clearTimeout(timer);
        this.#waitingReads.delete(check);
        resolve();
      };
      const check = () => {
        if (isOver()) end();
        else for (const delivery of deliveries) delivery.hurry();
      };
      const timer = setTimeout(end, maxReadWaitMs);
      this.#waitingReads.add(check);
      check();
    });
  }
}
