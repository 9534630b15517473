/** How long `work` takes, in milliseconds. */
export async function timedMs(work: () => Promise<unknown>): Promise<number> {
  const startMs = performance.now();
  await work();
  return performance.now() - startMs;
}

export function quantile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? Number.NaN;
}

export const median = (values: readonly number[]): number => quantile(values, 0.5);

/** Returns a function that returns the median of a figure over the results of all turns, rounded to this number of decimals. */
export const mediansOf =
  <Result>(results: readonly Result[], defaultDigits: number) =>
  (figure: (result: Result) => number, digits = defaultDigits): number =>
    round(median(results.map(figure)), digits);

/** Rounds to this number of decimals. */
export function round(value: number, digits = 2): number {
  return Number(value.toFixed(digits));
}

/** Resources of this process: CPU seconds, user and system, and maximum resident memory in MiB. */
export function ownCost(): { readonly cpu_seconds: number; readonly peak_memory_mib: number } {
  const { userCPUTime, systemCPUTime, maxRSS } = process.resourceUsage();
  return { cpu_seconds: round((userCPUTime + systemCPUTime) / 1e6, 1), peak_memory_mib: round(maxRSS / 1_024, 0) };
}

/** Prints the figures of a bench as its last line, of JSON. */
export function printFigures(figures: { readonly bench: string; readonly [figure: string]: unknown }): void {
  console.log(JSON.stringify(figures));
}
