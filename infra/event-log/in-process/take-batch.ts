/** The share of a request that is waiting for one partition. */
export interface WaitingShare {
  /** Id of the organisation. Undefined for Runlake's internal work. */
  readonly tenantId: string | undefined;
  readonly rows: number;
  readonly bytes: number;
}

export interface BatchLimits {
  readonly rows: number;
  readonly bytes: number;
}

/**
 * Maximum number of bytes in a batch while several organisations publish. ClickHouse stores this amount in a fraction
 * of a second, even under load.
 */
const maxSharedBatchBytes = 1024 * 1024;

export interface Sharing {
  /** Whether several organisations are currently publishing. */
  readonly isShared: boolean;
  /** Organisations that already have a batch in flight. Their requests are skipped. */
  readonly excludedTenantIds: ReadonlySet<string | undefined>;
}

/**
 * Takes the next batch from a queue. The first candidate is always taken, regardless of its size.
 *
 * While only one organisation publishes, the batch is the head of the queue, up to the limits. While several
 * organisations publish, batches are small, because each request waits for the batch before its own batch. They are
 * filled in turn: the organisation with the fewest bytes in the batch is next, so that no organisation waits for the
 * queue of another organisation. The requests of one organisation stay in order, and so do the events of a key.
 */
export function dequeueBatch<Share extends WaitingShare>(
  queue: Share[],
  limits: BatchLimits,
  { isShared, excludedTenantIds }: Sharing,
): Share[] {
  const maxBytes = isShared ? Math.min(limits.bytes, maxSharedBatchBytes) : limits.bytes;
  const candidates =
    excludedTenantIds.size === 0 ? queue : queue.filter(({ tenantId }) => !excludedTenantIds.has(tenantId));
  const takenShares = new Set<Share>();
  let rows = 0;
  let bytes = 0;
  for (const share of isShared ? yieldFairly(candidates) : candidates) {
    rows += share.rows;
    bytes += share.bytes;
    if (takenShares.size > 0 && (rows > limits.rows || bytes > maxBytes)) break;
    takenShares.add(share);
  }
  const batch: Share[] = [];
  let left = 0;
  for (const share of queue) {
    if (takenShares.has(share)) batch.push(share);
    else {
      queue[left] = share;
      left += 1;
    }
  }
  queue.length = left;
  return batch;
}

/** Returns true if one organisation has at least a quarter of the maximum number of bytes of a shared batch. */
export function hasDominantTenant(batch: readonly WaitingShare[]): boolean {
  const bytesByTenant = new Map<string | undefined, number>();
  for (const { tenantId, bytes } of batch) bytesByTenant.set(tenantId, (bytesByTenant.get(tenantId) ?? 0) + bytes);
  return Math.max(...bytesByTenant.values()) >= maxSharedBatchBytes / 4;
}

interface Tenant<Share> {
  bytes: number;
  next: number;
  readonly shares: Share[];
}

/**
 * Yields the next share of the organisation that has the fewest bytes so far. If several organisations have equally few
 * bytes, chooses the organisation that has waited longest.
 */
function* yieldFairly<Share extends WaitingShare>(queue: readonly Share[]): Generator<Share> {
  const byId = new Map<string | undefined, Tenant<Share>>();
  for (const share of queue) {
    const tenant = byId.get(share.tenantId);
    if (tenant) tenant.shares.push(share);
    else byId.set(share.tenantId, { bytes: 0, next: 0, shares: [share] });
  }
  const tenants = [...byId.values()];
  for (;;) {
    const waiting = tenants.filter(({ next, shares }) => next < shares.length);
    const [first] = waiting;
    if (first === undefined) return;
    const tenant = waiting.reduce(
      (smallestTenant, other) => (other.bytes < smallestTenant.bytes ? other : smallestTenant),
      first,
    );
    const share = tenant.shares[tenant.next] as Share;
    tenant.next += 1;
    tenant.bytes += share.bytes;
    yield share;
  }
}

/**
 * Maximum time for which a partition gathers requests after a batch: as a fraction of the time that the batch took, and
 * in milliseconds.
 */
const maxGatheringShare = 0.25;
const maxGatheringMs = 50;

/** A partition that can wait for further requests. */
export interface GatheringPartition {
  readonly queue: readonly unknown[];
  /** Set while the partition waits. `done` must be called when the number of queued requests is `requests`. */
  pendingGather?: { readonly requests: number; readonly done: () => void } | undefined;
}

/**
 * Waits until `requests` requests are queued, but at most for a fraction of `batchMs`. Does not wait if there is only
 * one sender.
 */
export async function gather(partition: GatheringPartition, requests: number, batchMs: number): Promise<void> {
  if (requests < 2 || partition.queue.length >= requests) return;
  await new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, Math.min(batchMs * maxGatheringShare, maxGatheringMs));
    const done = () => {
      clearTimeout(timer);
      resolve();
    };
    partition.pendingGather = { requests, done };
  });
  partition.pendingGather = undefined;
}
