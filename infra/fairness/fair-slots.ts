/**
 * Slots of one process, shared fairly between tenants under contention.
 *
 * Invariant: no slot is free while a tenant that may have it is waiting; at most `slots + extraSlots` slots are held; of
 * the waiting tenants, the one that holds the fewest slots is served next, and the queue of each tenant is first in,
 * first out.
 *
 *   1. A tenant without competitors may hold all `slots`.
 *   2. A tenant that holds less than its share (`slots` divided by the number of tenants that hold or wait for slots)
 *      may also take one of the `extraSlots`, so it need not wait for long, uninterruptible work of other tenants.
 *      When the other tenants finish their work, they get no new slots until fewer than `slots` are held again.
 *   3. A waiter leaves the queue when its signal is aborted or its wait times out. A full queue refuses immediately.
 *      Each tenant has its own queue, so one tenant cannot fill the queue of another.
 */
import { runlakeError } from '../errors/runlake-error.ts';
import { counter, histogram, scrapedGauge } from '../telemetry/metrics.ts';

export interface FairSlotsOptions {
  /** Kind of slot, for the label of the metrics and the message of OVERLOADED. */
  readonly name: string;
  readonly slots: number;
  readonly extraSlots: number;
  /** Maximum length of the queue of one tenant. */
  readonly maxWaiting: number;
}

export interface AcquireOptions {
  readonly maxWaitMs: number;
  readonly signal?: AbortSignal | undefined;
}

export interface Slot {
  /** Whether another tenant held more slots than this one when the slot was granted. */
  readonly isUnderShare: boolean;
  /** Number of tenants with slots when the slot was granted, including this one. */
  readonly tenants: number;
  /** Releases the slot. Idempotent. */
  release(): void;
}

interface Waiter {
  readonly grant: (slot: Slot) => void;
}

interface Tenant {
  heldSlots: number;
  /** Waiters in order of arrival. */
  readonly waiting: Set<Waiter>;
  /** Sequence number of the last grant; breaks ties between tenants that hold the same number of slots. */
  lastGrant: number;
}

const waitSeconds = histogram(
  'runlake_fair_slots_wait_seconds',
  'Wait for a slot that organisations share, by kind of slot.',
  ['slots'],
  [0.001, 0.005, 0.025, 0.1, 0.5, 1, 2.5, 5, 10, 30],
);
const refusals = counter(
  'runlake_fair_slots_refused_total',
  'Work that was refused a slot that organisations share, by kind of slot and cause (queue-full, timeout, cancelled).',
  ['slots', 'cause'],
);
const usage = scrapedGauge(
  'runlake_fair_slots',
  'Slots that organisations share, by kind of slot and state (held, waiting).',
  ['slots', 'state'],
);
const slotsByName = new Map<string, FairSlots>();

export class FairSlots {
  readonly #options: FairSlotsOptions;
  readonly #tenants = new Map<string, Tenant>();
  #held = 0;
  #grants = 0;

  constructor(options: FairSlotsOptions) {
    this.#options = options;
    slotsByName.set(options.name, this);
    usage.setReader(
      () =>
        [...slotsByName].flatMap(([slots, { held, waiting }]) => [
          { labels: { slots, state: 'held' }, value: held },
          { labels: { slots, state: 'waiting' }, value: waiting },
        ]),
      0,
    );
  }

  get held(): number {
    return this.#held;
  }

  get waiting(): number {
    return [...this.#tenants.values()].reduce((sum, { waiting }) => sum + waiting.size, 0);
  }

  /**
   * Acquires a slot.
   *
   * @throws OVERLOADED if the queue is full or the wait times out; the reason of `signal` if it is aborted.
   */
  async acquire(tenantId: string, { maxWaitMs, signal }: AcquireOptions): Promise<Slot> {
    const { name, maxWaiting } = this.#options;
    signal?.throwIfAborted();
    const tenant = this.#getOrAddTenant(tenantId);
    if (tenant.waiting.size === 0 && this.#canGrant(tenant)) return this.#take(tenantId, tenant);
    if (tenant.waiting.size >= maxWaiting) {
      refusals.inc({ slots: name, cause: 'queue-full' });
      throw createOverloadedError(name);
    }
    const endWait = waitSeconds.startTimer({ slots: name });
    let leaveQueue = () => {};
    try {
      return await new Promise<Slot>((grant, reject) => {
        const waiter = { grant };
        const refuse = (cause: string, reason: unknown) => {
          refusals.inc({ slots: name, cause });
          reject(reason);
        };
        const timer = setTimeout(() => refuse('timeout', createOverloadedError(name)), maxWaitMs);
        const onAbort = () => refuse('cancelled', signal?.reason);
        signal?.addEventListener('abort', onAbort);
        tenant.waiting.add(waiter);
        leaveQueue = () => {
          clearTimeout(timer);
          signal?.removeEventListener('abort', onAbort);
          if (tenant.waiting.delete(waiter)) this.#grantNext(tenantId, tenant);
        };
      });
    } finally {
      leaveQueue();
      endWait();
    }
  }

  #getOrAddTenant(tenantId: string): Tenant {
    let tenant = this.#tenants.get(tenantId);
    if (tenant === undefined) {
      tenant = { heldSlots: 0, waiting: new Set(), lastGrant: 0 };
      this.#tenants.set(tenantId, tenant);
    }
    return tenant;
  }

  #canGrant(tenant: Tenant): boolean {
    const { slots, extraSlots } = this.#options;
    if (this.#held < slots) return true;
    return this.#held < slots + extraSlots && tenant.heldSlots < Math.max(1, Math.floor(slots / this.#tenants.size));
  }

  #take(tenantId: string, tenant: Tenant): Slot {
    let held = 0;
    let tenants = 1;
    for (const other of this.#tenants.values()) {
      if (other === tenant || other.heldSlots === 0) continue;
      tenants += 1;
      held = Math.max(held, other.heldSlots);
    }
    tenant.heldSlots += 1;
    this.#held += 1;
    this.#grants += 1;
    tenant.lastGrant = this.#grants;
    let isReleased = false;
    const release = () => {
      if (isReleased) return;
      isReleased = true;
      tenant.heldSlots -= 1;
      this.#held -= 1;
      this.#grantNext(tenantId, tenant);
    };
    return { isUnderShare: tenant.heldSlots <= held, tenants, release };
  }

  /**
   * Called after a tenant has released a slot or has stopped waiting for one. Drops a tenant without slots and waiters,
   * and grants free slots to waiters.
   */
  #grantNext(tenantId: string, tenant: Tenant): void {
    if (tenant.heldSlots === 0 && tenant.waiting.size === 0) this.#tenants.delete(tenantId);
    for (;;) {
      const next = this.#next();
      if (next === undefined) return;
      const [id, { waiting }] = next;
      for (const first of waiting) {
        waiting.delete(first);
        first.grant(this.#take(id, next[1]));
        break;
      }
    }
  }

  #next(): readonly [string, Tenant] | undefined {
    let nextCandidate: readonly [string, Tenant] | undefined;
    for (const entry of this.#tenants) {
      const [, tenant] = entry;
      if (tenant.waiting.size === 0 || !this.#canGrant(tenant)) continue;
      const takesPrecedence =
        nextCandidate === undefined ||
        tenant.heldSlots < nextCandidate[1].heldSlots ||
        (tenant.heldSlots === nextCandidate[1].heldSlots && tenant.lastGrant < nextCandidate[1].lastGrant);
      if (takesPrecedence) nextCandidate = entry;
    }
    return nextCandidate;
  }
}

function createOverloadedError(name: string): Error {
  return runlakeError('OVERLOADED', { what: name }, { retryAfterSeconds: 1 });
}
