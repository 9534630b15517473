import { Ledger } from './ledger.ts';
import { type OpenPipeline, openOnStack } from './on-stack.ts';
import type { Pipeline } from './pipeline.ts';

export interface PipelinePool {
  /** Runs `work` with a free pipeline; waits until one is free. */
  withPipeline(work: (pipeline: Pipeline, ledger: Ledger) => Promise<void>): Promise<void>;
  close(): Promise<void>;
}

interface PooledPipeline {
  opened: Promise<OpenPipeline> | undefined;
  ledger: Ledger;
}

/**
 * Opens a pool of pipelines on the native stack, each with a ledger of everything that was sent through it. Tests that
 * mostly wait, for example for a group that waits for its dead member, run concurrently, and successive tests reuse a
 * started pipeline. A failed test closes its pipeline, and the next test starts another one.
 */
export function openPipelinePool(count: number, environment: Readonly<Record<string, string>> = {}): PipelinePool {
  const pool = Array.from({ length: count }, (): PooledPipeline => ({ opened: undefined, ledger: new Ledger() }));
  const free = [...pool];
  const waiting: ((pooled: PooledPipeline) => void)[] = [];
  const closePooled = async ({ opened }: PooledPipeline) => {
    const open = await opened?.catch(() => undefined);
    await open?.close();
  };
  return {
    async withPipeline(work) {
      const pooled = free.shift() ?? (await new Promise<PooledPipeline>((resolve) => waiting.push(resolve)));
      try {
        pooled.opened ??= openOnStack(environment);
        await work((await pooled.opened).pipeline, pooled.ledger);
      } catch (error) {
        await closePooled(pooled);
        Object.assign(pooled, { opened: undefined, ledger: new Ledger() });
        throw error;
      } finally {
        const next = waiting.shift();
        if (next) next(pooled);
        else free.push(pooled);
      }
    },
    async close() {
      await Promise.all(pool.map(closePooled));
    },
  };
}
