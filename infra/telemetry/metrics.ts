import { Counter, collectDefaultMetrics, Histogram, Registry } from 'prom-client';

/**
 * The metrics of this process, as `/metrics` shows them. A module makes its own with the functions below, once, at its top.
 * Names begin with `runlake_` and end with their unit, or with `_total` for counters (Prometheus: "Metric and label naming").
 * Gauges are looked up when they are scraped: `scraped-gauge.ts`.
 */
export const registry = new Registry();

type Name = `runlake_${string}`;
type CounterName = `${Name}_total`;
type HistogramName = `${Name}_${'seconds' | 'bytes' | 'rows'}`;
/** A number of things has the name of the things and no unit. */
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

/** Adds memory, CPU, event loop and garbage collection of the process; calling it again changes nothing. */
export function collectProcessMetrics(): void {
  if (registry.getSingleMetric('runlake_process_cpu_seconds_total') !== undefined) return;
  collectDefaultMetrics({ register: registry, prefix: 'runlake_' });
}
