/**
 * The memory of one process for request bodies and for large pages of stored values, shared fairly between organisations
 * when it is scarce. Requests without a key count as one organisation.
 *
 * Invariant: at most 1.25 × `maxBytes` are held. An organisation that holds no more than its share (`maxBytes` divided
 * by the number of organisations that currently hold memory) is refused only if the additional quarter is used up as
 * well.
 *
 *   1. While the budget is not used up, every request gets memory, and a single organisation may use the whole budget.
 *      While an organisation holds more than half of the budget, its arriving bodies are read slowly. This applies
 *      backpressure before requests are refused, and leaves time for other organisations.
 *   2. If the budget is used up, a request is refused if its organisation would exceed its share.
 *   3. Otherwise the request gets memory from organisations above their share. Their arriving bodies end with
 *      OVERLOADED, largest body first, starting with the organisation that holds the most memory, until that
 *      organisation is down to its share. In the same way, the connections of responses with large pages are closed
 *      while their clients receive them.
 *   4. Bodies that have arrived completely are not ended, because they are processed quickly. Until their memory is
 *      released, requests use the additional quarter.
 */
import { getHeapStatistics } from 'node:v8';
import type { Config } from '../../../infra/config/settings.ts';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { counter, scrapedGauge } from '../../../infra/telemetry/metrics.ts';

export const incompleteBodies = counter(
  'runlake_ingest_bodies_ended_total',
  'Request bodies that were not read completely, and large responses that were not sent, by cause: no-room (the whole budget is in use), over-share (the organisation exceeds its share), displaced (ended in favour of another organisation), slow.',
  ['cause'],
);
const heldBytes = scrapedGauge('runlake_ingest_body_bytes', 'Bytes of request bodies in memory.', []);

/**
 * Read rate of each body while its organisation holds more than half of the budget; a body of 50 MB then takes 25 s.
 */
const slowBytesPerSecond = 2 * 1024 * 1024;

interface Tenant {
  bytes: number;
  readonly bodies: Set<BodyShare>;
}

/** Heap bytes of one item (run, span or part) while its request is processed, at most: measured with small runs. */
const heapBytesPerItem = 800;
/** Bytes of one item outside the heap: its encoded event without the bytes that were sent. */
const bufferBytesPerItem = 600;
/** Items that are charged together, so that small requests cost nothing. */
const itemsPerCharge = 100;

/** Heap bytes of one value of a parsed JSON body: measured with empty arrays and objects, and with members. */
const heapBytesPerValue = 100;
const valuesPerCharge = 1_000;

/**
 * Returns the charge for something that needs `heapBytes` of the heap, and `otherBytes`. The heap is usually smaller
 * than the budget, so the charge is so high that a budget used up by the heap alone leaves half of the heap.
 */
function computeCharge(maxBytes: number, heapBytes: number, otherBytes = 0): number {
  const heapShare = (2 * heapBytes * maxBytes) / getHeapStatistics().heap_size_limit;
  return Math.ceil(Math.max(heapBytes + otherBytes, heapShare));
}

/** Memory that the work on a body needs in addition to the body. All methods throw OVERLOADED and BODY_TOO_LARGE. */
export type BodyMemory = Pick<BodyShare, 'take' | 'addItem' | 'addValue'>;

/** Maximum number of JSON values that are parsed for a request: more would block the event loop for too long. */
const maxParsedValues = 1_000_000;

/** Counts the values of JSON before it is parsed, and reserves memory for them. */
export class ParsedValues {
  readonly #memory: Pick<BodyMemory, 'addValue'> | undefined;
  #count = 0;

  constructor(memory: Pick<BodyMemory, 'addValue'> | undefined) {
    this.#memory = memory;
  }

  /** @throws TOO_MANY_PARTS, OVERLOADED */
  add(): void {
    this.#count += 1;
    if (this.#count > maxParsedValues)
      throw runlakeError('TOO_MANY_PARTS', { limitParts: maxParsedValues, limit: 'values in JSON' });
    this.#memory?.addValue();
  }

  /** Reserves memory for a copy of all values. @throws OVERLOADED */
  addCopies(): void {
    for (let copies = this.#count; copies > 0; copies--) this.#memory?.addValue();
  }
}

/** The share of the memory budget that one body holds. */
export class BodyShare {
  readonly #budget: BodyBudget;
  readonly #tenantId: string;
  readonly #onEvicted: (error: Error) => void;
  bytes = 0;
  /** True while the client sends the body, or receives the response, and thus determines how long the memory is held. */
  waitsForClient = true;
  #isClosed = false;
  #items = 0;
  #values = 0;

  /** Not for direct use: call {@link BodyBudget.open} instead. */
  constructor(budget: BodyBudget, tenantId: string, onEvicted: (error: Error) => void) {
    this.#budget = budget;
    this.#tenantId = tenantId;
    this.#onEvicted = onEvicted;
  }

  /** Reserves `bytes` of additional memory. @throws OVERLOADED; BODY_TOO_LARGE if they never fit into the budget */
  take(bytes: number): void {
    this.#budget.requireFit(this.bytes + bytes);
    this.#reserve(bytes);
  }

  #reserve(bytes: number): void {
    if (this.#isClosed) throw createOverloadedError();
    this.#budget.take(this, this.#tenantId, bytes);
  }

  /** Reserves memory for one more run, span or part of the body, for a hundred at once. @throws OVERLOADED */
  addItem(): void {
    this.#items++;
    if (this.#items % itemsPerCharge === 0) this.take(itemsPerCharge * this.#budget.itemBytes);
  }

  /** Reserves memory for one more value of a parsed body, for a thousand at once. @throws OVERLOADED */
  addValue(): void {
    this.#values++;
    if (this.#values % valuesPerCharge === 0) this.take(valuesPerCharge * this.#budget.valueBytes);
  }

  /**
   * Reserves memory for a page of stored values that needs `heapBytes` of the heap, and `otherBytes`. A page never needs
   * more than half of the budget, so that it can be read if there is nothing else. @throws OVERLOADED
   */
  takePage(heapBytes: number, otherBytes?: number): void {
    this.#reserve(this.#budget.chargePage(heapBytes, otherBytes));
  }

  /** Returns how long to pause reading after the client has sent `bytes`, in milliseconds. */
  pauseMs(bytes: number): number {
    return this.#budget.exceedsHalf(this.#tenantId) ? (bytes / slowBytesPerSecond) * 1_000 : 0;
  }

  release(bytes: number): void {
    if (!this.#isClosed) this.#budget.release(this, this.#tenantId, bytes);
  }

  /** Releases all memory of the body. Idempotent. */
  close(): void {
    this.release(this.bytes);
    this.#isClosed = true;
  }

  evict(): void {
    this.close();
    this.#onEvicted(createOverloadedError());
  }
}

export class BodyBudget {
  readonly #maxBytes: number;
  readonly itemBytes: number;
  readonly valueBytes: number;
  readonly #tenants = new Map<string, Tenant>();
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
    this.itemBytes = computeCharge(maxBytes, heapBytesPerItem, bufferBytesPerItem);
    this.valueBytes = computeCharge(maxBytes, heapBytesPerValue);
    heldBytes.setReader(() => this.#bytes, 0);
  }

  /**
   * Opens the share of a new body.
   *
   * @param onEvicted Called at most once, while the body is still arriving, after its bytes have been released.
   */
  open(tenantId: string, onEvicted: (error: Error) => void): BodyShare {
    return new BodyShare(this, tenantId, onEvicted);
  }

  /** @throws BODY_TOO_LARGE if a body with so much memory would be refused each time that it is sent */
  requireFit(bytes: number): void {
    if (bytes <= this.#maxBytes) return;
    const limit = 'with the memory for its items and values, half of RUNLAKE_MEMORY_BYTES';
    throw runlakeError('BODY_TOO_LARGE', { limitBytes: this.#maxBytes, limit });
  }

  take(body: BodyShare, tenantId: string, bytes: number): void {
    const tenant = this.#tenants.get(tenantId) ?? { bytes: 0, bodies: new Set() };
    this.#tenants.set(tenantId, tenant);
    tenant.bodies.add(body);
    if (this.#bytes + bytes > this.#maxBytes) this.#evictLargest(tenant, bytes);
    body.bytes += bytes;
    tenant.bytes += bytes;
    this.#bytes += bytes;
  }

  chargePage(heapBytes: number, otherBytes?: number): number {
    return Math.min(computeCharge(this.#maxBytes, heapBytes, otherBytes), Math.floor(this.#maxBytes / 2));
  }

  exceedsHalf(tenantId: string): boolean {
    return (this.#tenants.get(tenantId)?.bytes ?? 0) > this.#maxBytes / 2;
  }

  release(body: BodyShare, tenantId: string, bytes: number): void {
    const tenant = this.#tenants.get(tenantId);
    if (tenant === undefined) return;
    body.bytes -= bytes;
    tenant.bytes -= bytes;
    this.#bytes -= bytes;
    if (body.bytes === 0) tenant.bodies.delete(body);
    if (tenant.bodies.size === 0) this.#tenants.delete(tenantId);
  }

  #evictLargest(tenant: Tenant, bytes: number): void {
    const share = this.#maxBytes / this.#tenants.size;
    if (tenant.bytes + bytes > share) throw createBusyError(this.#tenants.size === 1 ? 'no-room' : 'over-share');
    const others = [...this.#tenants.values()].filter((other) => other !== tenant && other.bytes > share);
    for (const other of others.sort((a, b) => b.bytes - a.bytes)) {
      for (const body of [...other.bodies]
        .filter(({ waitsForClient }) => waitsForClient)
        .sort((a, b) => b.bytes - a.bytes)) {
        if (this.#bytes + bytes <= this.#maxBytes) return;
        if (other.bytes <= share) break;
        incompleteBodies.inc({ cause: 'displaced' });
        body.evict();
      }
    }
    if (this.#bytes + bytes > this.#maxBytes * 1.25) throw createBusyError('no-room');
  }
}

/** Budgets by size. All servers of a process are configured with the same size and therefore share one budget. */
const budgets = new Map<number, BodyBudget>();

export function getBodyBudget({ maxCollectingBytes }: Pick<Config, 'maxCollectingBytes'>): BodyBudget {
  const budget = budgets.get(maxCollectingBytes) ?? new BodyBudget(maxCollectingBytes);
  budgets.set(maxCollectingBytes, budget);
  return budget;
}

function createBusyError(cause: 'no-room' | 'over-share'): Error {
  incompleteBodies.inc({ cause });
  return createOverloadedError();
}

function createOverloadedError(): Error {
  return runlakeError('OVERLOADED', { what: 'request bodies, half of RUNLAKE_MEMORY_BYTES' }, { retryAfterSeconds: 1 });
}
