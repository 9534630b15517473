import { type BaseCheckpointSaver, MemorySaver } from '@langchain/langgraph-checkpoint';
import type pg from 'pg';
import { type Lease, LeasedSaver } from '../checkpoints/leased-saver.ts';

/** Makes savers for runs and questions: under a lease they write, without one they only read. */
export type SaverFor = (lease?: Lease) => BaseCheckpointSaver;

/** Without connections all state lives in this process. */
export function openSavers(connections: pg.Pool | undefined): SaverFor {
  if (connections === undefined) {
    const memory = new MemorySaver();
    return () => memory;
  }
  return (lease) => new LeasedSaver(connections, lease);
}
