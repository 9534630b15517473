/**
 * The leases of this process: its heartbeat, and the runs that it holds by their tokens.
 *
 * Invariant: an attempt goes on only while the heartbeat, by this process's own clock, is valid, and its token is that of the run. Every
 * run that this process holds in Postgres has an attempt here, or is requeued.
 *
 *   1. A third of the lease after the last one, and at once when a cancel is notified, the heartbeat is renewed. It has a connection of
 *      its own and a statement timeout below the lease, so neither locks on runs nor a busy pool delay it.
 *   2. The same statement returns the running runs of this process. An attempt whose token is missing has lost its lease; one that
 *      somebody cancelled is told so.
 *   3. A local timer ends at the time up to which the heartbeat is known to be valid: then all attempts have lost their leases.
 *   4. A run of this process that no attempt holds for a third of the lease is requeued: the answer to its claim was lost, or its
 *      attempt broke off and could not requeue it.
 *
 * If the process dies, other processes requeue its runs when the heartbeat has expired.
 */
import type { Sql } from '../../../infra/postgres/database.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import { type LeasedRun, type RunProcess, removeHeartbeat, renewHeartbeat } from '../runs/renew-heartbeat.ts';
import type { ClaimedRun } from '../runs/run-row.ts';

/** What the attempt that holds a lease is told; each is called at most once. */
export interface LeaseWatcher {
  /** Somebody asked to cancel the run. */
  cancelled(): void;
  /** Another process may have the run. */
  lost(): void;
}

export interface LeaseDeps {
  /** A connection for the heartbeat alone, with a statement timeout below the lease. */
  readonly heartbeats: Sql;
  readonly process: RunProcess;
  readonly leaseMs: number;
  readonly logger: Logger;
  /** Requeues a run of this process that no attempt holds. */
  readonly requeue: (run: LeasedRun) => Promise<void>;
  /** The heartbeat is valid, and was not before. */
  readonly onAlive: () => void;
}

export class Leases {
  readonly #deps: LeaseDeps;
  readonly #held = new Map<string, { readonly watcher: LeaseWatcher; cancelled: boolean }>();
  /** Tokens of this process without an attempt, and when they were first seen. */
  readonly #unheld = new Map<string, number>();
  #timer: NodeJS.Timeout | undefined;
  #expiry: NodeJS.Timeout | undefined;
  #renewing: Promise<void> | undefined;
  #again = false;
  #stopped = false;
  #alive = false;
  #noticedAtMs = 0;

  constructor(deps: LeaseDeps) {
    this.#deps = deps;
    this.renewSoon();
  }

  /** Whether runs may be claimed: the heartbeat is valid. */
  get alive(): boolean {
    return this.#alive;
  }

  /** Watches the lease of `run`, which was claimed no earlier than `claimedAtMs` of this process's clock, until the result is called. */
  keep(run: ClaimedRun, claimedAtMs: number, watcher: LeaseWatcher): () => void {
    const { leaseToken } = run;
    this.#held.set(leaseToken, { watcher, cancelled: false });
    this.#unheld.delete(leaseToken);
    // A cancel that was notified between the claim and now found no watcher.
    if (this.#noticedAtMs >= claimedAtMs) this.renewSoon();
    if (!this.#alive) this.#lose(leaseToken);
    return () => void this.#held.delete(leaseToken);
  }

  /** Renews at once: a cancel was notified. */
  renewSoon(): void {
    if (this.#stopped) return;
    this.#noticedAtMs = performance.now();
    this.#again = true;
    clearTimeout(this.#timer);
    this.#renewing ??= this.#renew().finally(() => {
      this.#renewing = undefined;
      if (!this.#stopped) this.#timer = setTimeout(() => this.renewSoon(), this.#deps.leaseMs / 3);
    });
  }

  /** For the end of the process, when no attempt is left. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#alive = false;
    clearTimeout(this.#timer);
    clearTimeout(this.#expiry);
    await this.#renewing;
    clearTimeout(this.#expiry);
    await removeHeartbeat(this.#deps.heartbeats, this.#deps.process).catch((err) =>
      this.#deps.logger.warn({ err }, 'heartbeat not removed: it expires'),
    );
  }

  async #renew(): Promise<void> {
    const { heartbeats, process, leaseMs, logger } = this.#deps;
    while (this.#again && !this.#stopped) {
      this.#again = false;
      const asked = [...this.#held.keys()];
      const startedAtMs = performance.now();
      try {
        const runs = await renewHeartbeat(heartbeats, process, leaseMs);
        if (this.#stopped) return;
        this.#validUntil(startedAtMs + leaseMs);
        this.#compare(asked, runs);
      } catch (err) {
        logger.warn({ err, leases: asked.length }, 'heartbeat not renewed: retrying');
      }
    }
  }

  #validUntil(untilMs: number): void {
    clearTimeout(this.#expiry);
    const leftMs = untilMs - performance.now();
    if (leftMs <= 0) {
      this.#expire();
      return;
    }
    this.#expiry = setTimeout(() => this.#expire(), leftMs);
    const wasAlive = this.#alive;
    this.#alive = true;
    if (!wasAlive) this.#deps.onAlive();
  }

  #expire(): void {
    this.#alive = false;
    if (this.#held.size > 0)
      this.#deps.logger.warn({ leases: this.#held.size }, 'heartbeat expired: all leases are lost');
    for (const token of [...this.#held.keys()]) this.#lose(token);
  }

  #compare(asked: readonly string[], runs: readonly LeasedRun[]): void {
    const byToken = new Map(runs.map((run) => [run.leaseToken, run]));
    for (const token of asked) {
      const held = this.#held.get(token);
      if (held === undefined) continue;
      const run = byToken.get(token);
      if (run === undefined) this.#lose(token);
      else if (run.cancelAction !== undefined && !held.cancelled) {
        held.cancelled = true;
        held.watcher.cancelled();
      }
    }
    const nowMs = performance.now();
    for (const token of this.#unheld.keys()) if (!byToken.has(token)) this.#unheld.delete(token);
    for (const [token, run] of byToken) {
      if (this.#held.has(token)) continue;
      const sinceMs = this.#unheld.get(token) ?? nowMs;
      this.#unheld.set(token, sinceMs);
      if (nowMs - sinceMs < this.#deps.leaseMs / 3) continue;
      this.#deps.requeue(run).catch((err) => {
        this.#deps.logger.warn({ err, runId: run.runId }, 'run without an attempt not requeued: retrying');
      });
    }
  }

  #lose(token: string): void {
    const held = this.#held.get(token);
    this.#held.delete(token);
    held?.watcher.lost();
  }
}
