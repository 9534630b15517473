import type { Job, Queue, Worker, WorkerOptions } from 'bullmq';

/** Store of the job queues: Postgres or Redis. */
export interface JobBackend {
  openQueue(name: string): Queue;
  openWorker(name: string, run: (job: Job) => Promise<void>, limits: WorkerLimits): Worker;
  /** Calls `listener` after each reconnect to the store, which may have lost its data. */
  onReconnect(listener: () => void): void;
  close(): Promise<void>;
}

export type WorkerLimits = Pick<WorkerOptions, 'concurrency' | 'maxStalledCount'>;
