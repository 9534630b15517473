export interface WaitingRequest {
  /** Id of the organisation. Undefined for Runlake's internal work. */
  readonly tenantId: string | undefined;
  readonly bytes: number;
}

/**
 * Takes the next requests from a queue, up to `maxBytes`. The first request is taken regardless of its size.
 *
 * The organisation with the fewest bytes in the batch is next, so that no organisation waits for the queue of another
 * organisation. The requests of one organisation stay in order, and so do the events of a key.
 *
 * @param isExcluded returns true for organisations whose requests stay in the queue.
 */
export function dequeueBatch<Request extends WaitingRequest>(
  queue: Request[],
  maxBytes: number,
  isExcluded: (tenantId: string | undefined) => boolean,
): Request[] {
  const taken = new Set<Request>();
  let bytes = 0;
  for (const request of yieldFairly(queue, isExcluded)) {
    bytes += request.bytes;
    if (taken.size > 0 && bytes > maxBytes) break;
    taken.add(request);
  }
  let left = 0;
  for (const request of queue) {
    if (taken.has(request)) continue;
    queue[left] = request;
    left += 1;
  }
  queue.length = left;
  return [...taken];
}

interface Tenant<Request> {
  bytes: number;
  next: number;
  readonly requests: Request[];
}

/**
 * Yields the next request of the organisation that has the fewest bytes so far. If several organisations have equally few
 * bytes, chooses the organisation that has waited longest.
 */
function* yieldFairly<Request extends WaitingRequest>(
  queue: readonly Request[],
  isExcluded: (tenantId: string | undefined) => boolean,
): Generator<Request> {
  const byId = new Map<string | undefined, Tenant<Request>>();
  for (const request of queue) {
    const tenant = byId.get(request.tenantId);
    if (tenant) tenant.requests.push(request);
    else if (!isExcluded(request.tenantId)) byId.set(request.tenantId, { bytes: 0, next: 0, requests: [request] });
  }
  const tenants = [...byId.values()];
  for (;;) {
    const waiting = tenants.filter(({ next, requests }) => next < requests.length);
    const [first] = waiting;
    if (first === undefined) return;
    const tenant = waiting.reduce(
      (smallestTenant, other) => (other.bytes < smallestTenant.bytes ? other : smallestTenant),
      first,
    );
    const request = tenant.requests[tenant.next] as Request;
    tenant.next += 1;
    tenant.bytes += request.bytes;
    yield request;
  }
}
