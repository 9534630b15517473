/**
 * The events of each organisation that the in-process log has acknowledged and its consumers have not stored yet, and the
 * reads that wait for them.
 */
import { getTenantContext, type TenantContext } from '../../fairness/tenant-context.ts';
import { isWithinPendingLimit } from '../event-log.ts';
import type { PartitionDelivery } from './partition-delivery.ts';

/** How many requests of an organisation a partition has got and has stored. It stores them in order. */
interface Counts {
  added: number;
  stored: number;
}

interface Tenant {
  bytes: number;
  readonly counts: Map<PartitionDelivery, Counts>;
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
   * share, `maxBytes` divided by the number of organisations with events, from an additional quarter.
   */
  isWithinLimit(tenantId: string | undefined, bytes: number): boolean {
    if (isWithinPendingLimit(this.total, bytes, this.#maxBytes)) return true;
    const total = this.total + bytes;
    const own = this.#bytes.get(tenantId) ?? 0;
    const share = this.#maxBytes / (this.#bytes.size + (own === 0 ? 1 : 0));
    return own + bytes <= share && total <= 1.25 * this.#maxBytes;
  }
}

/** Maximum size of the events of an organisation that are appended and not stored, as a share of `maxPendingBytes`. */
const maxTenantShare = 1 / 16;
/** Maximum time for which a read waits. */
const maxReadWaitMs = 5_000;

export class UnstoredEventsByTenant {
  readonly #maxBytes: number;
  readonly #tenants = new Map<string | undefined, Tenant>();
  readonly #waitingReads = new Set<() => void>();
  /** The wait of each request that reads, until it publishes events. */
  readonly #waits = new WeakMap<TenantContext, Promise<void>>();

  constructor(maxPendingBytes: number) {
    this.#maxBytes = maxTenantShare * maxPendingBytes;
  }

  /**
   * Adds the events of a request in one partition. Returns a function that removes them when they are stored. From half of
   * the maximum on, the partition does not gather events: the groups store one half while the other is appended.
   */
  add(tenantId: string | undefined, bytes: number, delivery: PartitionDelivery): () => void {
    const tenant = this.#tenants.get(tenantId) ?? { bytes: 0, counts: new Map() };
    this.#tenants.set(tenantId, tenant);
    const counts = tenant.counts.get(delivery) ?? { added: 0, stored: 0 };
    tenant.counts.set(delivery, counts);
    tenant.bytes += bytes;
    counts.added += 1;
    if (tenant.bytes > this.#maxBytes / 2) delivery.hurry();
    return () => {
      tenant.bytes -= bytes;
      counts.stored += 1;
      if (counts.stored === counts.added) tenant.counts.delete(delivery);
      if (tenant.counts.size === 0) this.#tenants.delete(tenantId);
    };
  }

  /** Returns whether so many events of the organisation wait for the groups that no more must be appended. */
  isFull(tenantId: string | undefined): boolean {
    return (this.#tenants.get(tenantId)?.bytes ?? 0) > this.#maxBytes;
  }

  /** Must be called after a batch was stored or rejected. */
  checkReads(): void {
    for (const check of this.#waitingReads) check();
  }

  /** Must be called after the current request has published events: its next read waits for them. */
  notePublished(): void {
    const context = getTenantContext();
    if (context !== undefined) this.#waits.delete(context);
  }

  /**
   * Resolves when the events of the organisation of the tenant context, and those of Runlake itself, are stored that were
   * added before. Resolves earlier when a batch is rejected, and after five seconds. While it waits, partitions do not
   * gather events. A request waits once: each of its reads may otherwise wait for events that came after the request.
   */
  async waitUntilStored(): Promise<void> {
    const context = getTenantContext();
    if (context === undefined) return;
    const wait = this.#waits.get(context) ?? this.#wait(context.organizationId);
    this.#waits.set(context, wait);
    await wait;
  }

  async #wait(tenantId: string): Promise<void> {
    const tenants = [tenantId, undefined].flatMap((id) => this.#tenants.get(id) ?? []);
    const waited = tenants.flatMap(({ counts }) =>
      [...counts].map(([delivery, of]) => ({ delivery, counts: of, end: of.added })),
    );
    const isOver = () =>
      waited.some(({ delivery }) => delivery.isRejected) || waited.every(({ counts, end }) => counts.stored >= end);
    if (isOver()) return;
    await new Promise<void>((resolve) => {
      const end = () => {
        clearTimeout(timer);
        this.#waitingReads.delete(check);
        resolve();
      };
      const check = () => {
        if (isOver()) end();
        else for (const { delivery } of waited) delivery.hurry();
      };
      const timer = setTimeout(end, maxReadWaitMs);
      this.#waitingReads.add(check);
      check();
    });
  }
}
