import { randomUUID } from 'node:crypto';
import { graphEnvironment } from '../../infra/config/graph-environment.ts';
import { createLogger } from '../../infra/telemetry/logger.ts';
import { readGraphsFile } from '../../pipelines/agents/graphs/graphs-file.ts';
import type { RunKwargs } from '../../pipelines/agents/runs/run.ts';
import { openWorkerPool, type WorkerPoolOptions } from '../../pipelines/agents/workers/open-worker-pool.ts';
import type { Chunk, RunHandle, RunJob } from '../../pipelines/agents/workers/worker-pool.ts';
import { type GoingRun, openThreads } from '../pipelines/agents/checkpoints/threads.ts';

/** Path of a project of graphs in `test/agents/projects`. */
export const projectFile = (name: string) => new URL(`projects/${name}/langgraph.json`, import.meta.url).pathname;

export interface Told {
  readonly event: string;
  readonly namespace: string;
  readonly mode: string;
  // biome-ignore lint/suspicious/noExplicitAny: what graphs stream, looked at by tests
  readonly data: any;
}

export interface JobUnderTest {
  readonly thread?: string;
  readonly input?: unknown;
  readonly kwargs?: Partial<RunKwargs>;
  readonly job?: Partial<RunJob>;
  readonly take?: (chunks: readonly Chunk[]) => Promise<void>;
  /** The attempt that this one follows on, which died after all that it has written. */
  readonly after?: GoingRun;
}

export type PoolUnderTest = Awaited<ReturnType<typeof openPoolUnderTest>>;

/** A pool on a project, on a database of its own, and a short way to have it run graphs and tell what came. */
export async function openPoolUnderTest(project: string, options: Partial<WorkerPoolOptions> = {}) {
  const threads = await openThreads();
  const pool = await openWorkerPool({
    file: await readGraphsFile(projectFile(project)),
    workers: 1,
    runsPerWorker: 8,
    database: { url: threads.databaseUrl },
    environment: graphEnvironment(),
    maxEventBytes: 8 * 1024 * 1024,
    maxBufferedBytes: 256 * 1024 * 1024,
    silentMs: 10_000,
    logger: createLogger('silent', 'test'),
    ...options,
  });

  /** Starts a run whose row holds a lease. `told` grows as its chunks come. */
  async function start(graphId: string, { thread, input = {}, kwargs, job, take, after }: JobUnderTest = {}) {
    const going = after
      ? await threads.startAgain(after)
      : await threads.startRun(thread ?? (await threads.newThread()));
    const told: Told[] = [];
    const handle: RunHandle = pool.start(
      {
        deploymentId: threads.deploymentId,
        threadId: going.threadId,
        runId: going.runId,
        assistantId: randomUUID(),
        graphId,
        attempt: going.attempt,
        leaseToken: going.leaseToken,
        kwargs: {
          input,
          config: {},
          stream_mode: ['values'],
          subgraphs: false,
          resumable: false,
          durability: 'async',
          temporary: false,
          ...kwargs,
        },
        start: { kind: 'input' },
        alone: false,
        timeoutMs: 60_000,
        ...job,
      },
      async (chunks) => {
        await take?.(chunks);
        for (const { event, namespace, mode, data } of chunks) {
          told.push({ event, namespace, mode, data: JSON.parse(Buffer.from(data).toString()) });
        }
      },
    );
    const ended = handle.outcome.then(() => threads.endRun(going));
    return { ...going, told, handle, ended };
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
    /** The outcome's values, where it finished; else a failure of the test that shows the outcome. */
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
