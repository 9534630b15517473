import { Agent } from 'undici';
import type { MeasuredServer } from './agent-server.ts';
import { createThread, type StreamedRun, streamRun } from './stream-run.ts';

export interface LoadPlan {
  readonly runs: number;
  /** Concurrent runs. */
  readonly atOnce: number;
  /** Events that each run writes. */
  readonly events: number;
}

export interface LoadResult {
  readonly runsPerSecond: number;
  readonly runs: readonly StreamedRun[];
}

/** Streams this many runs, each on a new thread; the threads are created before the measurement. */
export async function loadServer(server: MeasuredServer, plan: LoadPlan): Promise<LoadResult> {
  const dispatcher = new Agent({ connections: plan.atOnce, bodyTimeout: 0, headersTimeout: 0 });
  try {
    const threads: string[] = [];
    await turns(plan, async () => void threads.push(await createThread(server, dispatcher)));
    const runs: StreamedRun[] = [];
    const began = performance.now();
    await turns(plan, async (turn) => {
      runs.push(await streamRun(server, dispatcher, threads[turn]!, plan.events));
    });
    return { runsPerSecond: (plan.runs / (performance.now() - began)) * 1_000, runs };
  } finally {
    await dispatcher.destroy();
  }
}

/** Executes `work` for each run of the plan, with limited concurrency. */
export async function turns({ runs, atOnce }: LoadPlan, work: (turn: number) => Promise<void>): Promise<void> {
  let next = 0;
  const client = async () => {
    for (let turn = next++; turn < runs; turn = next++) await work(turn);
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, runs) }, client));
}
