import { type BaseCheckpointSaver, MemorySaver } from '@langchain/langgraph-checkpoint';
import type pg from 'pg';
import { type EarlyAcks, type Lease, LeasedSaver } from '../checkpoints/leased-saver.ts';

/** Creates checkpoint savers for runs and queries. A saver with a lease may write; one without a lease only reads. */
export type SaverFor = (lease?: Lease, early?: EarlyAcks) => SettlingSaver;

export interface SettlingSaver extends BaseCheckpointSaver {
  /**
   * For savers that acknowledge early. Resolves when all writes are stored. @throws the error of a write that failed.
   */
  settled?(): Promise<void>;
  /** For persistent savers. Resolves to whether a task of the thread has used a resume value of the run. */
  hasConsumedResume?(key: string): Promise<boolean>;
}

/** Returns a function that creates savers. Without connections, savers keep all state in the memory of this process. */
export function openSavers(connections: pg.Pool | undefined): SaverFor {
  if (connections === undefined) {
    const memory = new MemorySaver();
    return () => memory;
  }
  return (lease, early) => new LeasedSaver(connections, lease, early);
}
