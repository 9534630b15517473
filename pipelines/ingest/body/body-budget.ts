/**
 * The memory for request bodies of one process, shared fairly between organisations while it is short.
 *
 * Invariant: at most `maxBytes` and a quarter of that are held; an organisation that holds no more than its share (`maxBytes` divided
 * by the organisations that hold any) is refused only if that quarter is used up, too.
 *
 *   1. As long as there is room everybody gets it: an organisation alone may hold all of it.
 *   2. Without room, who holds more than its share is refused.
 *   3. Who holds less gets its bytes from the others: their bodies that still arrive end with OVERLOADED, those of the organisation
 *      that holds most first, while it holds more than its share.
 *   4. Bodies that have arrived are not ended: their work is short. For the time until it is done there is a further quarter.
 */
import { fault } from '../../../infra/errors/runlake-error.ts';
import { counter } from '../../../infra/telemetry/metrics.ts';
import { scrapedGauge } from '../../../infra/telemetry/scraped-gauge.ts';

export const endedBodies = counter(
  'runlake_ingest_bodies_ended_total',
  'Bodies that were not read to their end, by cause: no-room (all is in use), over-share (the organisation uses more than its share), displaced (while it arrived, by another organisation), slow.',
  ['cause'],
);
const heldBytes = scrapedGauge('runlake_ingest_body_bytes', 'Bytes of the bodies that are being taken in.', []);

interface Tenant {
  bytes: number;
  readonly bodies: Set<BodyShare>;
}

/** What one body holds. */
export class BodyShare {
  readonly #budget: BodyBudget;
  readonly #tenantId: string;
  readonly #onDisplaced: (error: Error) => void;
  bytes = 0;
  /** Whether its client still decides how long it is held. */
  isArriving = true;
  #closed = false;

  /** For {@link BodyBudget.open}. */
  constructor(budget: BodyBudget, tenantId: string, onDisplaced: (error: Error) => void) {
    this.#budget = budget;
    this.#tenantId = tenantId;
    this.#onDisplaced = onDisplaced;
  }

  /** @throws OVERLOADED */
  take(bytes: number): void {
    if (this.#closed) throw overloaded();
    this.#budget.take(this, this.#tenantId, bytes);
  }

  giveBack(bytes: number): void {
    if (!this.#closed) this.#budget.giveBack(this, this.#tenantId, bytes);
  }

  /** Gives everything back. Calling it again changes nothing. */
  close(): void {
    this.giveBack(this.bytes);
    this.#closed = true;
  }

  displace(): void {
    this.close();
    this.#onDisplaced(overloaded());
  }
}

export class BodyBudget {
  readonly #maxBytes: number;
  readonly #tenants = new Map<string, Tenant>();
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
    heldBytes.showing(() => this.#bytes, 0);
  }

  /** @param onDisplaced called at most once, while the body is arriving; its bytes have been given back then. */
  open(tenantId: string, onDisplaced: (error: Error) => void): BodyShare {
    return new BodyShare(this, tenantId, onDisplaced);
  }

  take(body: BodyShare, tenantId: string, bytes: number): void {
    const tenant = this.#tenants.get(tenantId) ?? { bytes: 0, bodies: new Set() };
    this.#tenants.set(tenantId, tenant);
    tenant.bodies.add(body);
    if (this.#bytes + bytes > this.#maxBytes) this.#makeRoom(tenant, bytes);
    body.bytes += bytes;
    tenant.bytes += bytes;
    this.#bytes += bytes;
  }

  giveBack(body: BodyShare, tenantId: string, bytes: number): void {
    const tenant = this.#tenants.get(tenantId);
    if (tenant === undefined) return;
    body.bytes -= bytes;
    tenant.bytes -= bytes;
    this.#bytes -= bytes;
    if (body.bytes === 0) tenant.bodies.delete(body);
    if (tenant.bodies.size === 0) this.#tenants.delete(tenantId);
  }

  #makeRoom(tenant: Tenant, bytes: number): void {
    const share = this.#maxBytes / this.#tenants.size;
    if (tenant.bytes + bytes > share) throw refused(this.#tenants.size === 1 ? 'no-room' : 'over-share');
    const others = [...this.#tenants.values()].filter((other) => other !== tenant && other.bytes > share);
    for (const other of others.sort((a, b) => b.bytes - a.bytes)) {
      for (const body of [...other.bodies].filter(({ isArriving }) => isArriving).sort((a, b) => b.bytes - a.bytes)) {
        if (this.#bytes + bytes <= this.#maxBytes) return;
        if (other.bytes <= share) break;
        endedBodies.inc({ cause: 'displaced' });
        body.displace();
      }
    }
    if (this.#bytes + bytes > this.#maxBytes * 1.25) throw refused('no-room');
  }
}

function refused(cause: 'no-room' | 'over-share'): Error {
  endedBodies.inc({ cause });
  return overloaded();
}

function overloaded(): Error {
  return fault('OVERLOADED', { what: 'RUNLAKE_MAX_COLLECTING_BYTES' }, { retryAfterSeconds: 1 });
}
