/**
 * Background jobs: BullMQ on Redis if an address is configured, otherwise on Postgres. Each kind of job has one queue.
 *
 * Invariant: a job that {@link Jobs.enqueue} accepted runs until it succeeds or its attempts are used up, even if
 * processes crash. A job may therefore run more than once (at-least-once), and handlers must be idempotent. Steps of an
 * attempt:
 *   1. A worker locks the job and renews the lock. If it crashes, the lock expires (30 s) and another worker takes the
 *      job.
 *   2. The payload is validated and the handler runs, at most for the timeout of the job.
 *   3. The result is written. After a crash before this step, the job runs again as in 1. Redis may have lost all data
 *      in an outage, so the schedules are written again after each reconnect.
 */
import type { Job, Queue, Worker } from 'bullmq';
import { Compile } from 'typebox/compile';
import {
  type JobCatalogue,
  type JobEntry,
  type JobName,
  type JobPayload,
  jobCatalogue,
} from '../../schemas/jobs/catalogue.ts';
import type { Config } from '../config/settings.ts';
import { runlakeError } from '../errors/runlake-error.ts';
import type { Logger } from '../telemetry/logger.ts';
import { timedOut, withTimeout } from '../timeouts/with-timeout.ts';
import { readTrustedAuthorities } from '../tls/trusted-authorities.ts';
import type { Jobs } from './jobs.ts';
import { openPostgresBackend, postgresStore } from './postgres-backend.ts';
import { openRedisBackend, redisStore } from './redis-backend.ts';

export interface JobsOptions<Catalogue extends JobCatalogue> {
  readonly databaseUrl: string;
  /** If `redisUrl` is set, the queues are in Redis instead of the database. */
  readonly config: Partial<Pick<Config, 'redisUrl' | 'tlsCaFile'>>;
  readonly logger: Logger;
  readonly catalogue?: Catalogue;
}

/**
 * Timeout of calls, because BullMQ waits forever for an unavailable store. If the job is added after the timeout, it
 * still runs; handlers are idempotent.
 */
const responseTimeoutMs = 5_000;
/** How often a job may crash its process before it is marked as failed. */
const maxStalledCount = 5;

/**
 * Opens the job queues and creates BullMQ's tables.
 *
 * @throws DATABASE_UNAVAILABLE and the other errors of the database; JOBS_UNAVAILABLE if Redis is configured and does
 *   not respond within 10 s; TLS_FILE_UNUSABLE.
 */
export async function openJobs<Catalogue extends JobCatalogue = typeof jobCatalogue>({
  databaseUrl,
  config,
  logger,
  catalogue = jobCatalogue as unknown as Catalogue,
}: JobsOptions<Catalogue>): Promise<Jobs<Catalogue>> {
  const { redisUrl } = config;
  const authorities = readTrustedAuthorities(config);
  const store = redisUrl === undefined ? postgresStore : redisStore;
  const logLoss = createLossLogger(store.store, logger);
  // Closing does not wait for the sockets, so errors are expected if Postgres stops right afterwards.
  const onLoss = (err: Error, job?: string) => {
    if (state !== 'closed') logLoss(err, job);
  };
  /** Workers are refused from the call of `close`, queues from the end of the last job. */
  let state: 'open' | 'closing' | 'closed' = 'open';
  const backend =
    redisUrl === undefined
      ? await openPostgresBackend({ url: databaseUrl, authorities }, Object.keys(catalogue).length, onLoss)
      : await openRedisBackend({ url: redisUrl, authorities }, onLoss);
  const queues = new Map<string, Queue>();
  const workers: Worker[] = [];
  const schedules: { readonly name: string; write(): Promise<unknown> }[] = [];
  backend.onReconnect(() => {
    for (const { name, write } of schedules) write().catch((err: Error) => onLoss(err, name));
  });

  function getQueue(name: string): Queue {
    const existing = queues.get(name);
    if (existing) return existing;
    const queue = backend.openQueue(name);
    queue.on('error', (err) => onLoss(err, name));
    queues.set(name, queue);
    return queue;
  }

  /** BullMQ repeats calls on closed connections for ever. @throws JOBS_UNAVAILABLE */
  async function callQueue(name: string, send: (queue: Queue) => Promise<unknown>): Promise<void> {
    const createError = (cause?: unknown) => runlakeError('JOBS_UNAVAILABLE', store, { cause, retryAfterSeconds: 1 });
    if (state === 'closed') throw createError();
    await runWithTimeout(responseTimeoutMs, () => send(getQueue(name))).catch((cause) => {
      throw createError(cause);
    });
  }

  async function add<Name extends JobName<Catalogue>>(
    name: Name,
    payload: JobPayload<Name, Catalogue>,
    send: (queue: Queue) => Promise<unknown>,
  ) {
    checkPayload(catalogue, name, payload);
    await callQueue(name, send);
  }

  return {
    enqueue: (name, payload, { delayMs = 0, jobId } = {}) =>
      add(name, payload, (queue) =>
        queue.add(name, payload, {
          ...toJobOptions(findJobEntry(catalogue, name)),
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
            { name, data: payload, opts: toJobOptions(findJobEntry(catalogue, name)) },
          ),
        );
      schedules.push({ name, write });
      return write();
    },
    work: (name, handler, options) => {
      if (state !== 'open') throw runlakeError('DRAINING');
      const { timeoutMs, concurrency: defaultConcurrency } = findJobEntry(catalogue, name);
      const concurrency = options?.concurrency ?? defaultConcurrency;
      const run = async (job: Job) => {
        checkPayload(catalogue, name, job.data);
        await runWithTimeout(timeoutMs, (signal) => handler(job.data, { number: job.attemptsMade + 1, signal }));
      };
      const worker = backend.openWorker(name, run, { concurrency, maxStalledCount });
      worker.on('error', (err) => onLoss(err, name));
      worker.on('failed', (job, err) => logFailure(logger, name, job, err));
      workers.push(worker);
    },
    check: async () => {
      const [name] = Object.keys(catalogue);
      await callQueue(name!, (queue) => queue.count());
    },
    close: async () => {
      state = 'closing';
      await Promise.all(workers.map((worker) => worker.close()));
      state = 'closed';
      await Promise.all([...queues.values()].map((queue) => queue.close()));
      await backend.close();
    },
  };
}

/**
 * Waits at most `timeoutMs` for `run`, then aborts the signal of `run`.
 *
 * @throws JOB_TIMED_OUT after the timeout, even if `run` ignores the signal.
 */
async function runWithTimeout(timeoutMs: number, run: (signal: AbortSignal) => Promise<unknown>): Promise<void> {
  const over = new AbortController();
  if ((await withTimeout(run(over.signal), timeoutMs)) !== timedOut) return;
  const error = runlakeError('JOB_TIMED_OUT', { timeoutMs });
  over.abort(error);
  throw error;
}

function logFailure(logger: Logger, name: string, job: Job | undefined, err: Error): void {
  const attempt = job?.attemptsMade;
  const isLast = job === undefined || attempt === job.opts.attempts;
  logger[isLast ? 'error' : 'warn'](
    { err, job: name, jobId: job?.id, attempt },
    isLast ? 'job failed' : 'attempt of a job failed',
  );
}

const weekSeconds = 7 * 86_400;

/** Converts a job type to BullMQ options. */
export function toJobOptions({ attempts, retryDelayMs, exponentialBackoff }: JobEntry) {
  return {
    attempts,
    backoff: { type: exponentialBackoff ? 'exponential' : 'fixed', delay: retryDelayMs },
    removeOnComplete: true,
    removeOnFail: { age: weekSeconds, count: 10_000 },
  };
}

/** @throws INVALID_JOB if the catalogue has no such kind. */
export function findJobEntry(catalogue: JobCatalogue, name: string): JobEntry {
  const entry = catalogue[name];
  if (entry === undefined) throw runlakeError('INVALID_JOB', { job: name, reason: 'unknown kind of job' });
  return entry;
}

/** @throws INVALID_JOB if `payload` does not match the schema of the job type. */
export function checkPayload(catalogue: JobCatalogue, name: string, payload: unknown): void {
  const check = Compile(findJobEntry(catalogue, name).payload);
  if (check.Check(payload)) return;
  const [first] = check.Errors(payload);
  throw runlakeError('INVALID_JOB', {
    job: name,
    reason: `${first?.instancePath || 'payload'} ${first?.message ?? 'is invalid'}`,
  });
}

/** Minimum interval between two log lines about lost connections, because the clients report every failed reconnect. */
const logIntervalMs = 10_000;

const lossCodePattern = /^(?:E(?!RR_)[A-Z_]+|57P0[1-3]|08\w{3})$/;

/**
 * Creates a listener for connection errors of `store`. The listener logs lost connections as one line without a stack,
 * at most once every 10 s, with the number of suppressed errors in `leftOut`. It logs all other errors in full.
 */
export function createLossLogger(store: string, logger: Logger): (err: Error, job?: string) => void {
  let loggedAtMs = Number.NEGATIVE_INFINITY;
  let leftOut = 0;
  return (err, job) => {
    const reason = toLossCode(err);
    if (reason === undefined) {
      logger.warn({ err, job }, `error of the job queues in ${store}`);
      return;
    }
    const nowMs = performance.now();
    if (nowMs - loggedAtMs < logIntervalMs) {
      leftOut += 1;
      return;
    }
    logger.warn({ reason, leftOut }, `the job queues lost their connection to ${store} and are reconnecting`);
    loggedAtMs = nowMs;
    leftOut = 0;
  };
}

function toLossCode(err: Error & { code?: unknown }): string | undefined {
  if (typeof err.code === 'string' && lossCodePattern.test(err.code)) return err.code;
  // Errors that the clients create themselves have no code.
  return /connection is closed|connection terminated|connection ended|timeout exceeded when trying to connect/i.test(
    err.message,
  )
    ? err.message
    : undefined;
}
