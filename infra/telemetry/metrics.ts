import { Counter, collectDefaultMetrics, Histogram, Registry } from 'prom-client';

/**
 * The metrics of this process, which `/metrics` serves. Modules create their metrics at the top level, with the
 * functions below. Names start with `runlake_` and end with their unit, or with `_total` for counters (Prometheus:
 * "Metric and label naming"). Gauges are computed at each scrape: `scraped-gauge.ts`.
 */
export const registry = new Registry();

type Name = `runlake_${string}`;
type CounterName = `${Name}_total`;
type HistogramName = `${Name}_${'seconds' | 'bytes' | 'rows'}`;
/** A gauge that counts things is named after the things, without a unit. */
export type GaugeName = Name;

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
