/**
 * The leases of this process: its heartbeat, and the runs that it owns, by fencing token.
 *
 * Invariant: an attempt continues only while the heartbeat is valid by the local clock and the run still has the token
 * of the attempt. Each run that Postgres assigns to this process has an attempt here, or is requeued.
 *
 *   1. The heartbeat is renewed every third of the lease, and at once on a cancel notification. It uses a dedicated
 *      connection and a statement timeout below the lease, so neither locks on runs nor a busy pool delay it.
 *   2. The same statement returns the running runs of this process. An attempt whose token is missing has lost its
 *      lease; an attempt whose run has a cancel request is notified.
 *   3. A local timer fires when the last renewed heartbeat expires; all attempts then lose their leases.
 *   4. A run of this process that has had no attempt for a third of the lease is requeued. Either the response to its
 *      claim was lost, or its attempt threw and could not requeue it.
 *
 * If the process dies, other processes requeue its runs when the heartbeat has expired.
 */
import type { Sql } from '../../../infra/postgres/database.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import { type Repeater, startRepeating } from '../../../infra/timeouts/repeat.ts';
import { countUptime, type LeasedRun, type RunProcess, removeHeartbeat, renewHeartbeat } from '../runs/claim-runs.ts';
import type { CancelAction } from '../runs/run.ts';
import type { ClaimedRun } from '../runs/run-row.ts';

/** Callbacks for the attempt that holds a lease. Each is called at most once. */
export interface LeaseWatcher {
  /** Called when a client has requested to cancel the run. */
  onCancelled(action: CancelAction): void;
  /** Called when the lease is lost; another process may own the run. */
  onLost(): void;
}

export interface LeaseDeps {
  /** A dedicated connection for the heartbeat, with a statement timeout below the lease. */
  readonly heartbeats: Sql;
  readonly process: RunProcess;
  readonly leaseMs: number;
  readonly logger: Logger;
  /** Requeues a run of this process that has no attempt. */
  readonly requeue: (run: LeasedRun) => Promise<void>;
  /** Called when the heartbeat becomes valid. */
  readonly onAlive: () => void;
}

export class Leases {
  readonly #deps: LeaseDeps;
  readonly #watchedByToken = new Map<string, { readonly watcher: LeaseWatcher; cancelled: boolean }>();
  /** Time at which a run of this process was first seen without an attempt, by fencing token. */
  readonly #firstSeenWithoutAttempt = new Map<string, number>();
  readonly #renewals: Repeater;
  #expiry: NodeJS.Timeout | undefined;
  #isAlive = false;
  #notifiedAtMs = 0;
  /** By the clock of Postgres. Undefined until the first heartbeat. */
  #uptimeCountedUntil: string | undefined;

  constructor(deps: LeaseDeps) {
    this.#deps = deps;
    this.#renewals = startRepeating((signal) => this.#renew(signal), {
      maxPauseMs: deps.leaseMs / 3,
      onFailure: (err) =>
        deps.logger.warn({ err, leases: this.#watchedByToken.size }, 'heartbeat not renewed; retrying'),
    });
  }

  /** Whether the heartbeat is valid, so that runs may be claimed. */
  get alive(): boolean {
    return this.#isAlive;
  }

  /**
   * Watches the lease of `run` until the returned function is called.
   *
   * @param claimedAtMs value of `performance.now()` before the claim.
   */
  keep(run: ClaimedRun, claimedAtMs: number, watcher: LeaseWatcher): () => void {
    const { leaseToken } = run;
    this.#watchedByToken.set(leaseToken, { watcher, cancelled: false });
    this.#firstSeenWithoutAttempt.delete(leaseToken);
    // A cancel notification that arrived after the claim had no watcher yet, so renew now to see the request.
    if (this.#notifiedAtMs >= claimedAtMs) this.renewSoon();
    if (!this.#isAlive) this.#lose(leaseToken);
    return () => void this.#watchedByToken.delete(leaseToken);
  }

  /** Renews the heartbeat at once, for example after a cancel notification. */
  renewSoon(): void {
    this.#notifiedAtMs = performance.now();
    this.#renewals.wake();
  }

  /** Stops the heartbeat and removes it. Call it at shutdown, when no attempt remains. */
  async stop(): Promise<void> {
    this.#isAlive = false;
    clearTimeout(this.#expiry);
    await this.#renewals.stop();
    clearTimeout(this.#expiry);
    await this.#countUptime();
    await removeHeartbeat(this.#deps.heartbeats, this.#deps.process).catch((err) =>
      this.#deps.logger.warn({ err }, 'heartbeat not removed; it expires by itself'),
    );
  }

  async #renew(signal: AbortSignal): Promise<void> {
    const { heartbeats, process, leaseMs } = this.#deps;
    const requestedTokens = [...this.#watchedByToken.keys()];
    const startedAtMs = performance.now();
    const runs = await renewHeartbeat(heartbeats, process, leaseMs);
    if (signal.aborted) return;
    this.#extendValidity(startedAtMs + leaseMs);
    this.#compare(requestedTokens, runs);
    await this.#countUptime();
  }

  async #countUptime(): Promise<void> {
    const { heartbeats, process, leaseMs, logger } = this.#deps;
    try {
      const { deploymentId } = process;
      this.#uptimeCountedUntil = await countUptime(heartbeats, {
        deploymentId,
        since: this.#uptimeCountedUntil,
        leaseMs,
      });
    } catch (err) {
      logger.warn({ err }, 'uptime not counted; the next heartbeat counts it');
    }
  }

  #extendValidity(untilMs: number): void {
    clearTimeout(this.#expiry);
    const leftMs = untilMs - performance.now();
    if (leftMs <= 0) {
      this.#expire();
      return;
    }
    this.#expiry = setTimeout(() => this.#expire(), leftMs);
    const wasAlive = this.#isAlive;
    this.#isAlive = true;
    if (!wasAlive) this.#deps.onAlive();
  }

  #expire(): void {
    this.#isAlive = false;
    if (this.#watchedByToken.size > 0)
      this.#deps.logger.warn({ leases: this.#watchedByToken.size }, 'heartbeat expired; all leases are lost');
    for (const token of [...this.#watchedByToken.keys()]) this.#lose(token);
  }

  #compare(requestedTokens: readonly string[], runs: readonly LeasedRun[]): void {
    const runsByToken = new Map(runs.map((run) => [run.leaseToken, run]));
    for (const token of requestedTokens) {
      const held = this.#watchedByToken.get(token);
      if (held === undefined) continue;
      const run = runsByToken.get(token);
      if (run === undefined) this.#lose(token);
      else if (run.cancelAction !== undefined && !held.cancelled) {
        held.cancelled = true;
        held.watcher.onCancelled(run.cancelAction);
      }
    }
    const nowMs = performance.now();
    for (const token of this.#firstSeenWithoutAttempt.keys())
      if (!runsByToken.has(token)) this.#firstSeenWithoutAttempt.delete(token);
    for (const [token, run] of runsByToken) {
      if (this.#watchedByToken.has(token)) continue;
      const sinceMs = this.#firstSeenWithoutAttempt.get(token) ?? nowMs;
      this.#firstSeenWithoutAttempt.set(token, sinceMs);
      if (nowMs - sinceMs < this.#deps.leaseMs / 3) continue;
      this.#deps.requeue(run).catch((err) => {
        this.#deps.logger.warn({ err, runId: run.runId }, 'run without an attempt not requeued; retrying');
      });
    }
  }

  #lose(token: string): void {
    const held = this.#watchedByToken.get(token);
    this.#watchedByToken.delete(token);
    held?.watcher.onLost();
  }
}
