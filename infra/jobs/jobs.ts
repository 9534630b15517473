import type { JobCatalogue, JobName, JobPayload, jobCatalogue } from '../../schemas/jobs/catalogue.ts';

export interface EnqueueOptions {
  /** Earliest start from now. Default: at once. */
  readonly delayMs?: number;
  /** While a job of this kind with this id waits or runs, another is not added. */
  readonly jobId?: string;
}

export interface Attempt {
  /** From 1. */
  readonly number: number;
  /** Aborted when the attempt's time is over: stop then, a further attempt may begin. */
  readonly signal: AbortSignal;
}

export interface Jobs<Catalogue extends JobCatalogue = typeof jobCatalogue> {
  /** Resolves when the job is stored. @throws INVALID_JOB, JOBS_UNAVAILABLE */
  enqueue<Name extends JobName<Catalogue>>(
    name: Name,
    payload: JobPayload<Name, Catalogue>,
    options?: EnqueueOptions,
  ): Promise<void>;
  /** Enqueues a job now and every `intervalMs` from then on; once, however many processes ask. @throws as `enqueue` */
  every<Name extends JobName<Catalogue>>(
    name: Name,
    intervalMs: number,
    payload: JobPayload<Name, Catalogue>,
  ): Promise<void>;
  /**
   * Runs jobs of this kind in this process, from now to {@link Jobs.close}. Once a kind.
   * @param options.concurrency most jobs at once in this process; default: what the catalogue says.
   */
  work<Name extends JobName<Catalogue>>(
    name: Name,
    handler: (payload: JobPayload<Name, Catalogue>, attempt: Attempt) => Promise<void>,
    options?: { readonly concurrency?: number },
  ): void;
  /** @throws JOBS_UNAVAILABLE where the store of the queues does not answer. */
  check(): Promise<void>;
  /** Takes no further jobs, lets those that run finish, and disconnects. */
  close(): Promise<void>;
}
