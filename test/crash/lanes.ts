import { Ledger } from './ledger.ts';
import { type OpenPipeline, openOnStack } from './on-stack.ts';
import type { Pipeline } from './pipeline.ts';

export interface Lanes {
  /** Does `work` in a lane that is free, as soon as one is. */
  inLane(work: (pipeline: Pipeline, ledger: Ledger) => Promise<void>): Promise<void>;
  close(): Promise<void>;
}

interface Lane {
  opened: Promise<OpenPipeline> | undefined;
  ledger: Ledger;
}

/**
 * Pipelines on the native stack, each with a ledger of all that was ever sent through it. Tests that mostly wait, such
 * as for a group that waits for its dead member, do so side by side; those that follow each other in a lane share its
 * start. One that fails leaves its pipeline to nobody.
 */
export function openLanes(count: number, environment: Readonly<Record<string, string>> = {}): Lanes {
  const lanes = Array.from({ length: count }, (): Lane => ({ opened: undefined, ledger: new Ledger() }));
  const free = [...lanes];
  const waiting: ((lane: Lane) => void)[] = [];
  const closeLane = async ({ opened }: Lane) => {
    const open = await opened?.catch(() => undefined);
    await open?.close();
  };
  return {
    async inLane(work) {
      const lane = free.shift() ?? (await new Promise<Lane>((resolve) => waiting.push(resolve)));
      try {
        lane.opened ??= openOnStack(environment);
        await work((await lane.opened).pipeline, lane.ledger);
      } catch (error) {
        await closeLane(lane);
        Object.assign(lane, { opened: undefined, ledger: new Ledger() });
        throw error;
      } finally {
        const next = waiting.shift();
        if (next) next(lane);
        else free.push(lane);
      }
    },
    async close() {
      await Promise.all(lanes.map(closeLane));
    },
  };
}
