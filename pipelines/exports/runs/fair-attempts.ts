/**
 * Chooses the next export run of this process, so that organisations share the workers fairly.
 *
 * Invariant: at most `concurrency` attempts run here, plus one for an organisation that has none running here. Among
 * the organisations with due runs, the one with the fewest leases over all processes is next.
 *
 *   1. A job only signals that some run is due. The run is chosen from the rows: the first due run of each organisation.
 *   2. The additional attempt keeps long runs of one organisation, which are not interrupted, from delaying the first
 *      run of another.
 *   3. If all slots are in use, the job waits until an attempt ends. It also checks again each second, because jobs of
 *      other organisations that become due are behind it in the queue.
 */
import { runForTenant } from '../../../infra/fairness/tenant-context.ts';
import { type AttemptDeps, attemptRun } from './attempt-run.ts';
import { type NextRun, nextRuns } from './due-runs.ts';

const pollIntervalMs = 1_000;
/** Lost races for a run before a job gives up; the sweep queues what is due. */
const maxLostRaces = 5;

export class FairAttempts {
  readonly #deps: AttemptDeps;
  readonly #concurrency: number;
  /** Attempts in this process, by organisation. */
  readonly #running = new Map<string, number>();
  /** Sequence number of the last start, by organisation. */
  readonly #lastStart = new Map<string, number>();
  #starts = 0;
  #total = 0;
  readonly #wakers = new Set<() => void>();

  constructor(deps: AttemptDeps, concurrency: number) {
    this.#deps = deps;
    this.#concurrency = concurrency;
  }

  /** Required concurrency of the job queue. */
  get maxJobs(): number {
    return this.#concurrency + 1;
  }

  /** Attempts one run, if one is due. @throws errors of the database. */
  async attemptNext(): Promise<void> {
    const { database, limits, now, attempts } = this.#deps;
    let lostRaces = 0;
    while (!attempts.stopping && lostRaces < maxLostRaces) {
      const due = await nextRuns(database, limits, now());
      if (due.length === 0) return;
      const chosen = this.#choose(due);
      if (chosen === undefined) {
        await this.#untilEnd();
      } else if (await this.#attempt(chosen)) return;
      else lostRaces += 1;
    }
  }

  /** Resolves when an attempt in this process ends, or after the poll interval. */
  async #untilEnd(): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = setTimeout(() => wake(), pollIntervalMs);
      const wake = () => {
        clearTimeout(timer);
        this.#wakers.delete(wake);
        resolve();
      };
      this.#wakers.add(wake);
    });
  }

  #choose(due: readonly NextRun[]): NextRun | undefined {
    if (this.#total > this.#concurrency) return undefined;
    return due
      .filter(({ organizationId }) => this.#total < this.#concurrency || !this.#running.has(organizationId))
      .toSorted(
        (a, b) =>
          a.leases - b.leases ||
          (this.#lastStart.get(a.organizationId) ?? 0) - (this.#lastStart.get(b.organizationId) ?? 0),
      )[0];
  }

  async #attempt({ id, organizationId }: NextRun): Promise<boolean> {
    this.#starts += 1;
    this.#lastStart.delete(organizationId);
    this.#lastStart.set(organizationId, this.#starts);
    for (const oldest of this.#lastStart.keys()) {
      if (this.#lastStart.size <= maxRemembered) break;
      this.#lastStart.delete(oldest);
    }
    this.#total += 1;
    this.#running.set(organizationId, (this.#running.get(organizationId) ?? 0) + 1);
    try {
      return await runForTenant({ organizationId }, () => attemptRun(this.#deps, id));
    } finally {
      this.#total -= 1;
      const left = (this.#running.get(organizationId) ?? 1) - 1;
      if (left === 0) this.#running.delete(organizationId);
      else this.#running.set(organizationId, left);
      for (const wake of this.#wakers) wake();
    }
  }
}

/** Maximum number of organisations whose last start is remembered. */
const maxRemembered = 10_000;
