/**
 * Gauges whose values are looked up when somebody scrapes them, which may mean asking a store.
 *
 * Invariant: whatever its source does, a scrape ends within {@link patienceMs}, at most one look of a gauge is under way, and a
 * look is repeated no sooner than `everyMs` after the last one began, however many scrape.
 *
 *   1. A scrape within `everyMs` of the last look shows what that look found.
 *   2. Otherwise it begins a look, or joins the one under way, and waits for it at most {@link patienceMs}.
 *   3. Nothing found in time, or the look failed: the gauge is absent from this scrape (not zero, not the old value) and
 *      `runlake_scrape_failures_total` counts it. A look that came too late serves the next scrape.
 */
import { Gauge } from 'prom-client';
import { counter, type GaugeName, registry } from './metrics.ts';

export interface Sample<Label extends string> {
  readonly labels: Readonly<Record<Label, string | number>>;
  readonly value: number;
}

/** Finds the present values; `undefined` where there is none. */
export type Look<Label extends string> = () => Samples<Label> | Promise<Samples<Label>>;
type Samples<Label extends string> = readonly Sample<Label>[] | number | undefined;

export interface ScrapedGauge<Label extends string> {
  /**
   * From now on the values come from `look`, which replaces an earlier one.
   *
   * @param everyMs shortest time between two looks, in milliseconds. 0 for values in memory; for those in a store the default
   *   of 5 seconds, so that scraping costs the store the same however often it happens.
   * @returns ends that; the gauge is absent then.
   */
  showing(look: Look<Label>, everyMs?: number): () => void;
}

export const patienceMs = 1_000;

const failures = counter('runlake_scrape_failures_total', 'Gauges that could not be looked up in time for a scrape.', [
  'metric',
]);

export function scrapedGauge<Label extends string>(
  name: GaugeName,
  help: string,
  labelNames: readonly Label[],
): ScrapedGauge<Label> {
  let current: Looking<Label> | undefined;
  const gauge: Gauge<Label> = new Gauge({
    name,
    help,
    labelNames: [...labelNames],
    registers: [registry],
    collect: async () => {
      const samples = await current?.samples();
      clear();
      for (const { labels, value } of samples ?? []) gauge.set(labels, value);
    },
  });
  /** Without labels prom-client shows 0 from the beginning; unknown is not zero. */
  function clear(): void {
    gauge.reset();
    if (labelNames.length === 0) gauge.remove();
  }
  clear();
  return {
    showing(look, everyMs = 5_000) {
      const mine = new Looking(name, look, everyMs);
      current = mine;
      return () => {
        if (current === mine) current = undefined;
      };
    },
  };
}

class Looking<Label extends string> {
  readonly #name: string;
  readonly #look: Look<Label>;
  readonly #everyMs: number;
  #begunAtMs = Number.NEGATIVE_INFINITY;
  #underWay: Promise<readonly Sample<Label>[] | undefined> | undefined;
  #found: readonly Sample<Label>[] | undefined;

  constructor(name: string, look: Look<Label>, everyMs: number) {
    this.#name = name;
    this.#look = look;
    this.#everyMs = everyMs;
  }

  async samples(): Promise<readonly Sample<Label>[] | undefined> {
    if (this.#underWay === undefined) {
      if (performance.now() - this.#begunAtMs < this.#everyMs) return this.#found;
      this.#begunAtMs = performance.now();
      this.#underWay = this.#lookNow().finally(() => {
        this.#underWay = undefined;
      });
    }
    let timer: NodeJS.Timeout | undefined;
    const tooLate = new Promise<'too late'>((resolve) => {
      timer = setTimeout(resolve, patienceMs, 'too late');
    });
    const found = await Promise.race([this.#underWay, tooLate]);
    clearTimeout(timer);
    if (found !== 'too late') return found;
    failures.inc({ metric: this.#name });
    return undefined;
  }

  async #lookNow(): Promise<readonly Sample<Label>[] | undefined> {
    try {
      const found = await this.#look();
      this.#found =
        typeof found === 'number' ? [{ labels: {} as Record<Label, string | number>, value: found }] : found;
    } catch {
      // What is wrong with the store is told by readiness and by the log of those who need it.
      this.#found = undefined;
      failures.inc({ metric: this.#name });
    }
    return this.#found;
  }
}
