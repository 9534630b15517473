/** Part of a request that waits for a partition. */
export interface WaitingShare {
  /** The organisation; for work of Runlake itself undefined. */
  readonly tenantId: string | undefined;
  readonly rows: number;
  readonly bytes: number;
}

export interface BatchLimits {
  readonly rows: number;
  readonly bytes: number;
}

/** ClickHouse stores so much in a fraction of a second, also while it is busy. */
const sharedBatchBytes = 1024 * 1024;

/**
 * Takes the next batch from a queue. The first one is always taken, whatever its size.
 *
 * While one organisation uses the log it takes the first of the queue, up to the limits. While several do (`isShared`), batches are small,
 * as each request waits for the batch before its own, and are filled in turn: the organisation with the fewest bytes in the batch is
 * next, so that none waits for the queue of another. Requests of one organisation keep their order, and so do events of a key.
 */
export function takeBatch<Share extends WaitingShare>(queue: Share[], limits: BatchLimits, isShared: boolean): Share[] {
  const maxBytes = isShared ? Math.min(limits.bytes, sharedBatchBytes) : limits.bytes;
  const taken = new Set<Share>();
  let rows = 0;
  let bytes = 0;
  for (const share of isShared ? inTurn(queue) : queue) {
    rows += share.rows;
    bytes += share.bytes;
    if (taken.size > 0 && (rows > limits.rows || bytes > maxBytes)) break;
    taken.add(share);
  }
  const batch: Share[] = [];
  let left = 0;
  for (const share of queue) {
    if (taken.has(share)) batch.push(share);
    else {
      queue[left] = share;
      left += 1;
    }
  }
  queue.length = left;
  return batch;
}

interface Tenant<Share> {
  bytes: number;
  next: number;
  readonly shares: Share[];
}

/** In the order in which organisations with the fewest bytes so far are served; of equal ones, the one that waits longest. */
function* inTurn<Share extends WaitingShare>(queue: readonly Share[]): Generator<Share> {
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
    const tenant = waiting.reduce((fewest, other) => (other.bytes < fewest.bytes ? other : fewest), first);
    const share = tenant.shares[tenant.next] as Share;
    tenant.next += 1;
    tenant.bytes += share.bytes;
    yield share;
  }
}
