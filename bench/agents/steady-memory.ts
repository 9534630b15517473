import { median } from '../figures.ts';
import type { MeasuredServer } from './agent-server.ts';
import { loadServer } from './load.ts';

const parts = 10;

/** Resident memory during this many runs: the median of each tenth, in MiB. */
export async function memoryOverRuns(server: MeasuredServer, runs: number): Promise<readonly number[]> {
  const tenths: number[] = [];
  for (let part = 0; part < parts; part += 1) {
    const samples = [server.memoryMib()];
    const sampler = setInterval(() => samples.push(server.memoryMib()), 500);
    try {
      await loadServer(server, { runs: Math.ceil(runs / parts), atOnce: 32, events: 100 });
    } finally {
      clearInterval(sampler);
    }
    tenths.push(median(samples));
  }
  return tenths;
}
