import { randomUUID } from 'node:crypto';
import { buildGraphEnvironment } from '../../infra/config/graph-environment.ts';
import { readGraphsFile } from '../../pipelines/agents/graphs/graphs-file.ts';
import type { RunKwargs } from '../../pipelines/agents/runs/run.ts';
import { openWorkerPool, type WorkerPoolOptions } from '../../pipelines/agents/workers/front/worker-pool.ts';
import type { Chunk, RunJob } from '../../pipelines/agents/workers/messages.ts';
import { type ActiveRun, openThreads } from '../pipelines/agents/checkpoints/threads.ts';
import { kwargs as defaultKwargs } from '../pipelines/agents/runs/run-rows.ts';
import { logger } from '../silent-logger.ts';

/** Returns the path of a graph project in `test/agents/projects`. */
export const projectFile = (name: string) => new URL(`projects/${name}/langgraph.json`, import.meta.url).pathname;

export interface ReceivedEvent {
  readonly event: string;
  readonly namespace: string;
  readonly mode: string;
  // biome-ignore lint/suspicious/noExplicitAny: data that graphs stream, inspected by tests
  readonly data: any;
}

export interface JobUnderTest {
  readonly thread?: string;
  readonly input?: unknown;
  readonly kwargs?: Partial<RunKwargs>;
  readonly job?: Partial<RunJob>;
  readonly take?: (chunks: readonly Chunk[]) => Promise<void>;
  /** The previous attempt of the run, which died after its last write. */
  readonly after?: ActiveRun;
}

export type PoolUnderTest = Awaited<ReturnType<typeof openPoolUnderTest>>;

/**
 * Opens a worker pool for a project on a new database.
 *
 * @returns the pool, and helpers that run graphs and collect their chunks.
 */
export async function openPoolUnderTest(project: string, options: Partial<WorkerPoolOptions> = {}) {
  const threads = await openThreads();
  const pool = await openWorkerPool({
    file: await readGraphsFile(projectFile(project)),
    workers: 1,
    runsPerWorker: 8,
    database: { url: threads.databaseUrl },
    environment: buildGraphEnvironment(),
    maxEventBytes: 8 * 1024 * 1024,
    maxBufferedBytes: 256 * 1024 * 1024,
    heartbeatTimeoutMs: 10_000,
    logger,
    ...options,
  });

  /** Starts a run whose row holds a lease. `received` grows as its chunks arrive. */
  async function start(graphId: string, { thread, input = {}, kwargs, job, take, after }: JobUnderTest = {}) {
    const active = after
      ? await threads.startAgain(after)
      : await threads.startRun(thread ?? (await threads.newThread()));
    const received: ReceivedEvent[] = [];
    const handle = pool.start(
      {
        deploymentId: threads.deploymentId,
        threadId: active.threadId,
        runId: active.runId,
        assistantId: randomUUID(),
        graphId,
        attempt: active.attempt,
        leaseToken: active.leaseToken,
        kwargs: defaultKwargs({ input, ...kwargs }),
        start: { kind: 'input' },
        alone: false,
        timeoutMs: 60_000,
        ...job,
      },
      async (chunks) => {
        await take?.(chunks);
        for (const { event, namespace, mode, data } of chunks) {
          received.push({ event, namespace, mode, data: JSON.parse(Buffer.from(data).toString()) });
        }
      },
    );
    const ended = handle.outcome.then(() => threads.endRun(active));
    return { ...active, received, handle, ended };
  }

  async function run(graphId: string, job: JobUnderTest = {}) {
    const started = await start(graphId, job);
    const outcome = await started.handle.outcome;
    await started.ended;
    return { ...started, outcome };
  }

  return {
    pool,
    threads,
    start,
    run,
    /** Returns the values of a finished run. If the run did not succeed, fails the test with its outcome. */
    values: async (graphId: string, job: JobUnderTest = {}) => {
      const { outcome } = await run(graphId, job);
      if (outcome.kind !== 'finished') throw new Error(`not finished: ${JSON.stringify(outcome)}`);
      return JSON.parse(outcome.values);
    },
    close: async () => {
      await pool.close(0);
      await threads.close();
    },
  };
}
