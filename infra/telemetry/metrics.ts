import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import { timedOut, withTimeout } from '../timeouts/with-timeout.ts';

/**
 * The metrics of this process, which `/metrics` serves. Modules create their metrics at the top level, with the
 * functions below. Names start with `runlake_` and end with their unit, or with `_total` for counters (Prometheus:
 * "Metric and label naming"). Gauges are computed at each scrape: {@link scrapedGauge}.
 */
export const registry = new Registry();

type Name = `runlake_${string}`;
type CounterName = `${Name}_total`;
type HistogramName = `${Name}_${'seconds' | 'bytes' | 'rows'}`;
/** Name of a gauge. A gauge that counts objects is named after the objects, without a unit. */
type GaugeName = Name;

export function counter<Label extends string>(
  name: CounterName,
  help: string,
  labelNames: readonly Label[],
): Counter<Label> {
  return new Counter({ name, help, labelNames: [...labelNames], registers: [registry] });
}

export function histogram<Label extends string>(
  name: HistogramName,
  help: string,
  labelNames: readonly Label[],
  buckets: readonly number[],
): Histogram<Label> {
  return new Histogram({ name, help, labelNames: [...labelNames], buckets: [...buckets], registers: [registry] });
}

/** Adds the process metrics: memory, CPU, event loop and garbage collection. Idempotent. */
export function collectProcessMetrics(): void {
  if (registry.getSingleMetric('runlake_process_cpu_seconds_total') !== undefined) return;
  collectDefaultMetrics({ register: registry, prefix: 'runlake_' });
}

export interface Sample<Label extends string> {
  readonly labels: Readonly<Record<Label, string | number>>;
  readonly value: number;
}

/** Reads the current values; returns `undefined` if there are none. */
export type ReadSamples<Label extends string> = () => Samples<Label> | Promise<Samples<Label>>;
type Samples<Label extends string> = readonly Sample<Label>[] | number | undefined;

export interface ScrapedGauge<Label extends string> {
  /** Returns the current values, as a scrape does. */
  read(): Promise<readonly Sample<Label>[]>;
  /**
   * Sets the function that reads the values; replaces an earlier one.
   *
   * @param minIntervalMs minimum time between two reads, in milliseconds. Use 0 for values in memory. For values in a
   * store,
   *   use the default of 5 seconds, so that frequent scrapes do not add load to the store.
   * @returns a function that removes the reader; the gauge is then absent from scrapes.
   */
  setReader(readSamples: ReadSamples<Label>, minIntervalMs?: number): () => void;
}

export const maxWaitMs = 1_000;

const failures = counter('runlake_scrape_failures_total', 'Gauges that could not be read in time for a scrape.', [
  'metric',
]);

/**
 * Creates a gauge whose values are read at each scrape, possibly from a store.
 *
 * Invariant: a scrape waits at most {@link maxWaitMs} for a gauge, at most one read of a gauge runs at a time, and a
 * new read starts no sooner than `minIntervalMs` after the start of the last one, however many scrapers there are.
 *
 *   1. A scrape within `minIntervalMs` of the last read returns the result of that read.
 *   2. Otherwise it starts a read, or joins the running one, and waits for it at most {@link maxWaitMs}.
 *   3. If the read fails or times out, the gauge is absent from this scrape (neither zero nor the old value) and
 *      `runlake_scrape_failures_total` counts it. The next scrape uses the result of a late read.
 */
export function scrapedGauge<Label extends string>(
  name: GaugeName,
  help: string,
  labelNames: readonly Label[],
): ScrapedGauge<Label> {
  let current: GaugeReader<Label> | undefined;
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
  /**
   * Removes the value. prom-client initialises a gauge without labels to 0, but an unknown value must not be shown as
   * zero.
   */
  function clear(): void {
    gauge.reset();
    if (labelNames.length === 0) gauge.remove();
  }
  clear();
  return {
    read: async () => (await current?.samples()) ?? [],
    setReader(look, minIntervalMs = 5_000) {
      const gaugeReader = new GaugeReader(name, look, minIntervalMs);
      current = gaugeReader;
      return () => {
        if (current === gaugeReader) current = undefined;
      };
    },
  };
}

class GaugeReader<Label extends string> {
  readonly #name: string;
  readonly #look: ReadSamples<Label>;
  readonly #minIntervalMs: number;
  #startedAtMs = Number.NEGATIVE_INFINITY;
  #inFlight: Promise<readonly Sample<Label>[] | undefined> | undefined;
  #found: readonly Sample<Label>[] | undefined;

  constructor(name: string, look: ReadSamples<Label>, minIntervalMs: number) {
    this.#name = name;
    this.#look = look;
    this.#minIntervalMs = minIntervalMs;
  }

  async samples(): Promise<readonly Sample<Label>[] | undefined> {
    if (this.#inFlight === undefined) {
      if (performance.now() - this.#startedAtMs < this.#minIntervalMs) return this.#found;
      this.#startedAtMs = performance.now();
      this.#inFlight = this.#read().finally(() => {
        this.#inFlight = undefined;
      });
    }
    const found = await withTimeout(this.#inFlight, maxWaitMs);
    if (found !== timedOut) return found;
    failures.inc({ metric: this.#name });
    return undefined;
  }

  async #read(): Promise<readonly Sample<Label>[] | undefined> {
    try {
      const found = await this.#look();
      this.#found =
        typeof found === 'number' ? [{ labels: {} as Record<Label, string | number>, value: found }] : found;
    } catch {
      // Not logged here, because readiness and the logs of other components report the error of the store.
      this.#found = undefined;
      failures.inc({ metric: this.#name });
    }
    return this.#found;
  }
}
