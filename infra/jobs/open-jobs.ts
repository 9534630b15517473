/**
 * Background jobs: BullMQ on Postgres, or on Redis where an address is given. One queue a kind of job.
 *
 * Invariant: a job that {@link Jobs.enqueue} took is run until it succeeds or its attempts are used up, whatever dies;
 * so each may run more than once, and handlers must bear that. Steps of an attempt:
 *   1. A worker takes the job under a lock, which it renews. Died: the lock runs out (30 s) and another worker takes it.
 *   2. The payload is checked and the handler runs, at most for the job's time.
 *   3. The outcome is written. Died before: as in 1, the job runs again.
 * A Redis that comes back may have lost everything: schedules are written again then.
 */
import type { Job, Queue, Worker } from 'bullmq';
import { type JobCatalogue, type JobName, type JobPayload, jobCatalogue } from '../../schemas/jobs/catalogue.ts';
import { fault } from '../errors/runlake-error.ts';
import type { Logger } from '../telemetry/logger.ts';
import type { Jobs } from './jobs.ts';
import { noteLosses } from './note-loss.ts';
import { openPostgresBackend, postgresStore } from './postgres-backend.ts';
import { openRedisBackend, redisStore } from './redis-backend.ts';
import { checkPayload, entryOf, rulesOf } from './rules.ts';
import { withinTime } from './within-time.ts';

export interface JobsOptions<Catalogue extends JobCatalogue> {
  readonly databaseUrl: string;
  /** Where set, queues live there and not in the database. */
  readonly redisUrl?: string | undefined;
  /** Certificate authorities to trust, in PEM. */
  readonly authorities?: readonly string[] | undefined;
  readonly logger: Logger;
  readonly catalogue?: Catalogue;
}

/** A queue that is opened while its store is away would wait for it without end. A job that gets in later is not one too many. */
const answerWithinMs = 5_000;
/** How often a job may take its whole process down before it counts as failed. */
const maxStalledCount = 5;

/**
 * @throws DATABASE_UNAVAILABLE and the other faults of the database while BullMQ's tables are made; JOBS_UNAVAILABLE where
 * Redis is to be used and does not answer within 10 s.
 */
export async function openJobs<Catalogue extends JobCatalogue = typeof jobCatalogue>({
  databaseUrl,
  redisUrl,
  authorities,
  logger,
  catalogue = jobCatalogue as unknown as Catalogue,
}: JobsOptions<Catalogue>): Promise<Jobs<Catalogue>> {
  const where = redisUrl === undefined ? postgresStore : redisStore;
  const onLoss = noteLosses(where.store, logger);
  const backend =
    redisUrl === undefined
      ? await openPostgresBackend({ url: databaseUrl, authorities }, Object.keys(catalogue).length, onLoss)
      : await openRedisBackend({ url: redisUrl, authorities }, onLoss);
  const queues = new Map<string, Queue>();
  const workers: Worker[] = [];
  const schedules: { readonly name: string; write(): Promise<unknown> }[] = [];
  backend.onReturn(() => {
    for (const { name, write } of schedules) write().catch((err: Error) => onLoss(err, name));
  });

  function queueOf(name: string): Queue {
    const existing = queues.get(name);
    if (existing) return existing;
    const queue = backend.openQueue(name);
    queue.on('error', (err) => onLoss(err, name));
    queues.set(name, queue);
    return queue;
  }

  async function add<Name extends JobName<Catalogue>>(
    name: Name,
    payload: JobPayload<Name, Catalogue>,
    send: (queue: Queue) => Promise<unknown>,
  ) {
    checkPayload(catalogue, name, payload);
    try {
      await withinTime(answerWithinMs, () => send(queueOf(name)));
    } catch (cause) {
      throw fault('JOBS_UNAVAILABLE', where, { cause, retryAfterSeconds: 1 });
    }
  }

  return {
    enqueue: (name, payload, { delayMs = 0, jobId } = {}) =>
      add(name, payload, (queue) =>
        queue.add(name, payload, {
          ...rulesOf(entryOf(catalogue, name)),
          delay: delayMs,
          ...(jobId === undefined ? {} : { deduplication: { id: jobId } }),
        }),
      ),
    every: (name, intervalMs, payload) => {
      const write = () =>
        add(name, payload, (queue) =>
          queue.upsertJobScheduler(
            name,
            { every: intervalMs },
            { name, data: payload, opts: rulesOf(entryOf(catalogue, name)) },
          ),
        );
      schedules.push({ name, write });
      return write();
    },
    work: (name, handler, options) => {
      const { timeoutMs, concurrency: usual } = entryOf(catalogue, name);
      const concurrency = options?.concurrency ?? usual;
      const run = async (job: Job) => {
        checkPayload(catalogue, name, job.data);
        await withinTime(timeoutMs, (signal) => handler(job.data, { number: job.attemptsMade + 1, signal }));
      };
      const worker = backend.openWorker(name, run, { concurrency, maxStalledCount });
      worker.on('error', (err) => onLoss(err, name));
      worker.on('failed', (job, err) => logFailure(logger, name, job, err));
      workers.push(worker);
    },
    check: async () => {
      const [name] = Object.keys(catalogue);
      await withinTime(answerWithinMs, () => queueOf(name!).count()).catch((cause) => {
        throw fault('JOBS_UNAVAILABLE', where, { cause, retryAfterSeconds: 1 });
      });
    },
    close: async () => {
      await Promise.all(workers.map((worker) => worker.close()));
      await Promise.all([...queues.values()].map((queue) => queue.close()));
      await backend.close();
    },
  };
}

function logFailure(logger: Logger, name: string, job: Job | undefined, err: Error): void {
  const attempt = job?.attemptsMade;
  const last = job === undefined || attempt === job.opts.attempts;
  logger[last ? 'error' : 'warn'](
    { err, job: name, jobId: job?.id, attempt },
    last ? 'a job failed for good' : 'an attempt of a job failed',
  );
}
