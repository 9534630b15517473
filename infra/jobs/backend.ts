import type { Job, Queue, Worker, WorkerOptions } from 'bullmq';

/** Where queues live. Two of them: Postgres and Redis. */
export interface JobBackend {
  openQueue(name: string): Queue;
  openWorker(name: string, run: (job: Job) => Promise<void>, limits: WorkerLimits): Worker;
  close(): Promise<void>;
}

export type WorkerLimits = Pick<WorkerOptions, 'concurrency' | 'maxStalledCount'>;
