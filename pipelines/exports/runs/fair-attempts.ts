/**
 * Which run of a bulk export this process works on next, so that organisations share the workers fairly.
 *
 * Invariant: at most `concurrency` attempts go on here, and one more for an organisation that has none here; among organisations with
 * runs that are due, the one that has the fewest leases, over all processes, is next.
 *
 *   1. A job only says that some run is due. Which one is read from the rows: the first of each organisation.
 *   2. The further attempt keeps long runs of one organisation, which are not interrupted, from holding up the first run of another.
 *   3. Where all attempts are taken the job waits until one ends; it looks again each second, since the jobs of others that become
 *      due are behind it in the queue.
 */
import { runForTenant } from '../../../infra/fairness/tenant-context.ts';
import { type AttemptPorts, attemptRun } from './attempt-run.ts';
import { type NextRun, nextRuns } from './due-runs.ts';

const lookEveryMs = 1_000;
/** Looks that find a run which another process takes first; beyond, the sweep queues what is due. */
const maxLost = 5;

export class FairAttempts {
  readonly #ports: AttemptPorts;
  readonly #concurrency: number;
  /** By organisation. */
  readonly #running = new Map<string, number>();
  /** Number of the last start, by organisation. */
  readonly #lastStart = new Map<string, number>();
  #starts = 0;
  #total = 0;
  readonly #looks = new Set<() => void>();

  constructor(ports: AttemptPorts, concurrency: number) {
    this.#ports = ports;
    this.#concurrency = concurrency;
  }

  /** Jobs that have to be taken at once. */
  get maxJobs(): number {
    return this.#concurrency + 1;
  }

  /** Works on one run, if one is due. @throws what the database throws. */
  async attemptNext(): Promise<void> {
    const { database, limits, now, attempts } = this.#ports;
    let lost = 0;
    while (!attempts.stopping && lost < maxLost) {
      const due = await nextRuns(database, limits, now());
      if (due.length === 0) return;
      const chosen = this.#choose(due);
      if (chosen === undefined) {
        await this.#untilEnd();
      } else if (await this.#attempt(chosen)) return;
      else lost += 1;
    }
  }

  /** Resolves when an attempt here ends, or when it is time for another look. */
  async #untilEnd(): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = setTimeout(() => look(), lookEveryMs);
      const look = () => {
        clearTimeout(timer);
        this.#looks.delete(look);
        resolve();
      };
      this.#looks.add(look);
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
    for (const longestAgo of this.#lastStart.keys()) {
      if (this.#lastStart.size <= maxRemembered) break;
      this.#lastStart.delete(longestAgo);
    }
    this.#total += 1;
    this.#running.set(organizationId, (this.#running.get(organizationId) ?? 0) + 1);
    try {
      return await runForTenant({ organizationId }, () => attemptRun(this.#ports, id));
    } finally {
      this.#total -= 1;
      const left = (this.#running.get(organizationId) ?? 1) - 1;
      if (left === 0) this.#running.delete(organizationId);
      else this.#running.set(organizationId, left);
      for (const look of this.#looks) look();
    }
  }
}

/** Organisations whose last start is remembered. */
const maxRemembered = 10_000;
