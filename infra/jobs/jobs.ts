import type { JobCatalogue, JobName, JobPayload, jobCatalogue } from '../../schemas/jobs/catalogue.ts';

export interface EnqueueOptions {
  /** Minimum delay before the job starts. Default: none. */
  readonly delayMs?: number;
  /**
   * Deduplication id: while a job of this kind with the same id is waiting or running, no further job with this id is
   * added.
   */
  readonly jobId?: string;
}

export interface Attempt {
  /** Number of the attempt, starting at 1. */
  readonly number: number;
  /** Aborted at the timeout of the attempt. The handler must stop then, because another attempt may start. */
  readonly signal: AbortSignal;
}

export interface Jobs<Catalogue extends JobCatalogue = typeof jobCatalogue> {
  /** Resolves when the job is stored. @throws INVALID_JOB, JOBS_UNAVAILABLE */
  enqueue<Name extends JobName<Catalogue>>(
    name: Name,
    payload: JobPayload<Name, Catalogue>,
    options?: EnqueueOptions,
  ): Promise<void>;
  /**
   * Enqueues a job immediately, and again every `intervalMs`. There is one schedule, even if several processes call
   * this. @throws as `enqueue`
   */
  every<Name extends JobName<Catalogue>>(
    name: Name,
    intervalMs: number,
    payload: JobPayload<Name, Catalogue>,
  ): Promise<void>;
  /**
   * Runs jobs of this kind in this process until {@link Jobs.close}. Call it once per kind.
   *
   * @throws DRAINING after a call of {@link Jobs.close}, so that a start that a signal interrupts ends there.
   *
   * @param options.concurrency maximum number of concurrent jobs in this process; default: from the catalogue.
   */
  work<Name extends JobName<Catalogue>>(
    name: Name,
    handler: (payload: JobPayload<Name, Catalogue>, attempt: Attempt) => Promise<void>,
    options?: { readonly concurrency?: number },
  ): void;
  /** Checks that the store of the queues responds. @throws JOBS_UNAVAILABLE */
  check(): Promise<void>;
  /**
   * Stops taking jobs, waits for the running ones, and disconnects. Running jobs can still add jobs; after that, adding
   * and checking throw JOBS_UNAVAILABLE.
   */
  close(): Promise<void>;
}
