import { type BaseCheckpointSaver, MemorySaver } from '@langchain/langgraph-checkpoint';
import type pg from 'pg';
import { type EarlyAnswers, type Lease, LeasedSaver } from '../checkpoints/leased-saver.ts';

/** Makes savers for runs and questions: under a lease they write, without one they only read. */
export type SaverFor = (lease?: Lease, early?: EarlyAnswers) => SettlingSaver;

export interface SettlingSaver extends BaseCheckpointSaver {
  /** Of those that answer early: resolves when all that was put is written. @throws what kept it from being written. */
  settled?(): Promise<void>;
  /** Of those that outlive this process: whether a task of a thread has taken an answer that the run gave. */
  tookAnswer?(key: string): Promise<boolean>;
}

/** Without connections all state lives in this process. */
export function openSavers(connections: pg.Pool | undefined): SaverFor {
  if (connections === undefined) {
    const memory = new MemorySaver();
    return () => memory;
  }
  return (lease, early) => new LeasedSaver(connections, lease, early);
}
