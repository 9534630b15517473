import type { Database } from '../../../infra/postgres/pool.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import { renewLeases } from '../runs/renew-leases.ts';
import type { CancelAction } from '../runs/run.ts';
import type { ClaimedRun } from '../runs/run-row.ts';

/** What the holder of a lease is told. */
export interface LeaseWatcher {
  /** Somebody asked to cancel the run. Called once. */
  cancelled(action: CancelAction): void;
  /** Another process may have the run. Called once. */
  lost(): void;
}

/** The leases that this process holds, renewed together. A lease that cannot be renewed before it runs out is lost. */
export class Leases {
  readonly #ports: {
    readonly database: Database;
    readonly logger: Logger;
    readonly leaseMs: number;
    readonly deploymentId: string;
  };
  readonly #held = new Map<string, { readonly watcher: LeaseWatcher; cancelled: boolean; untilMs: number }>();
  #timer: NodeJS.Timeout | undefined;
  #renewing = false;
  #soon = false;
  #noticedAtMs = 0;

  constructor(ports: {
    readonly database: Database;
    readonly logger: Logger;
    readonly leaseMs: number;
    readonly deploymentId: string;
  }) {
    this.#ports = ports;
  }

  /** Keeps the lease of `run`, which was claimed no earlier than `claimedAtMs` of this process's clock, until the returned function is called. */
  keep(run: ClaimedRun, claimedAtMs: number, watcher: LeaseWatcher): () => void {
    this.#held.set(run.leaseToken, { watcher, cancelled: false, untilMs: performance.now() + this.#ports.leaseMs });
    this.#timer ??= setTimeout(() => void this.#renew(), this.#ports.leaseMs / 3);
    // A cancel that was told between the claim and now found nobody here.
    if (this.#noticedAtMs >= claimedAtMs) this.renewSoon();
    return () => void this.#held.delete(run.leaseToken);
  }

  /** Looks at the rows at once: a cancel was asked for. */
  renewSoon(): void {
    this.#noticedAtMs = performance.now();
    this.#soon = true;
    if (!this.#renewing && this.#held.size > 0) void this.#renew();
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#held.clear();
  }

  async #renew(): Promise<void> {
    this.#renewing = true;
    clearTimeout(this.#timer);
    do {
      this.#soon = false;
      await this.#renewOnce();
    } while (this.#soon && this.#held.size > 0);
    this.#renewing = false;
    this.#timer = this.#held.size > 0 ? setTimeout(() => void this.#renew(), this.#ports.leaseMs / 3) : undefined;
  }

  async #renewOnce(): Promise<void> {
    const { database, logger, leaseMs, deploymentId } = this.#ports;
    const asked = [...this.#held.keys()];
    if (asked.length === 0) return;
    const startedAtMs = performance.now();
    try {
      const still = new Map(
        (await renewLeases(database, deploymentId, asked, leaseMs)).map((lease) => [lease.leaseToken, lease]),
      );
      for (const token of asked) {
        const held = this.#held.get(token);
        if (held === undefined) continue;
        const lease = still.get(token);
        if (lease === undefined) this.#lose(token);
        else {
          held.untilMs = startedAtMs + leaseMs;
          if (lease.cancelAction !== undefined && !held.cancelled) {
            held.cancelled = true;
            held.watcher.cancelled(lease.cancelAction);
          }
        }
      }
    } catch (err) {
      logger.warn({ err, leases: asked.length }, 'leases could not be renewed: trying again');
      for (const [token, held] of this.#held) if (performance.now() > held.untilMs) this.#lose(token);
    }
  }

  #lose(token: string): void {
    const held = this.#held.get(token);
    this.#held.delete(token);
    held?.watcher.lost();
  }
}
