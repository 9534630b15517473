import type { Job, Queue, Worker, WorkerOptions } from 'bullmq';

/** Where queues live. Two of them: Postgres and Redis. */
export interface JobBackend {
  openQueue(name: string): Queue;
  openWorker(name: string, run: (job: Job) => Promise<void>, limits: WorkerLimits): Worker;
  /** Calls `listener` each time the store is there again after a loss; it may have come back empty. */
  onReturn(listener: () => void): void;
  close(): Promise<void>;
}

export type WorkerLimits = Pick<WorkerOptions, 'concurrency' | 'maxStalledCount'>;
