import { LRUCache } from 'lru-cache';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/database.ts';
import { poll } from '../../infra/timeouts/poll.ts';
import { raceWithAbort } from '../../infra/timeouts/with-timeout.ts';
import { type ReplicaAddress, readReplicaAddresses, requireSlug } from './replicas.ts';

export interface ReplicaFinder {
  /**
   * Returns the address of a replica of the deployment; successive calls rotate through the replicas. Starts a
   * deployment that is asleep, and waits for its replica, also if another request has woken it.
   *
   * @param options `avoid`: addresses of replicas that did not respond. If it is set, the addresses are read again.
   * @throws NOT_FOUND; DEPLOYMENT_NOT_SERVING if no other replica responds; DRAINING; the reason of the signal
   */
  find(
    slug: string,
    options?: { readonly avoid?: ReadonlySet<string> | undefined; readonly signal?: AbortSignal | undefined },
  ): Promise<ReplicaAddress>;
}

/** The finder of a process. */
export interface OwnReplicaFinder extends ReplicaFinder {
  /**
   * Refuses all requests with DRAINING, also those that wait for a replica. Call it when the process drains; if no other
   * host can start the replicas, before they stop, because requests would wait for them and delay the shutdown.
   */
  stop(): void;
}

/** Maximum age of an address. It is shorter than the time for which a replaced replica accepts requests. */
const cacheMs = 1_000;
const maxCachedSlugs = 10_000;
/** Precision of the time of the last request. */
const useIntervalMs = 15_000;
const wakeTimeoutMs = 60_000;
const wakePollMs = 100;

export function createReplicaFinder(database: Database): OwnReplicaFinder {
  const cache = new LRUCache<string, readonly ReplicaAddress[]>({ max: maxCachedSlugs, ttl: cacheMs });
  const used = new LRUCache<string, true>({ max: maxCachedSlugs, ttl: useIntervalMs });
  const waking = new Map<string, Promise<readonly ReplicaAddress[]>>();
  const stopping = new AbortController();
  let next = 0;

  async function read(slug: string): Promise<readonly ReplicaAddress[]> {
    const found = await readReplicaAddresses(database, slug);
    const active = found.filter(({ isActive }) => isActive);
    const addresses = active.length > 0 ? active : found;
    if (addresses.length > 0) cache.set(slug, addresses);
    else cache.delete(slug);
    return addresses;
  }

  /** Records that the deployment is used, and ends its sleep. Writes only as often as necessary. */
  async function recordUse(slug: string): Promise<void> {
    if (used.has(slug)) return;
    used.set(slug, true);
    await database.execute('UPDATE deployments SET last_used_at = now() WHERE slug = $1', [slug]);
  }

  async function wake(slug: string): Promise<readonly ReplicaAddress[]> {
    const { id, isAsleep, isStarting } = await requireSlug(database, slug);
    if (isAsleep) {
      await database.execute('UPDATE deployments SET is_asleep = false, last_used_at = now() WHERE id = $1', [id]);
      await database.execute("SELECT pg_notify('deployments', $1)", [id]);
    } else if (!isStarting) return [];
    const attempt = async () => {
      const addresses = await read(slug);
      return addresses.length > 0 ? addresses : undefined;
    };
    const timing = { intervalMs: wakePollMs, timeoutMs: wakeTimeoutMs, signal: stopping.signal };
    const addresses = await poll(attempt, timing);
    stopping.signal.throwIfAborted();
    return addresses ?? [];
  }

  /** Requests that arrive while a deployment wakes wait together. */
  function wakeOnce(slug: string): Promise<readonly ReplicaAddress[]> {
    let addresses = waking.get(slug);
    if (addresses === undefined) {
      addresses = wake(slug).finally(() => waking.delete(slug));
      waking.set(slug, addresses);
    }
    return addresses;
  }

  return {
    async find(slug, { avoid, signal } = {}) {
      stopping.signal.throwIfAborted();
      let addresses = (avoid?.size ? undefined : cache.get(slug)) ?? (await read(slug));
      if (addresses.length === 0) addresses = await raceWithAbort(wakeOnce(slug), signal);
      else await recordUse(slug);
      const candidates = addresses.filter(({ url }) => avoid?.has(url) !== true);
      next = (next + 1) % Number.MAX_SAFE_INTEGER;
      const address = candidates[next % candidates.length];
      if (address === undefined) throw runlakeError('DEPLOYMENT_NOT_SERVING', { deployment: slug });
      return address;
    },
    stop: () => stopping.abort(runlakeError('DRAINING', {}, { retryAfterSeconds: 1 })),
  };
}
