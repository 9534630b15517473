import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { ExportLimits } from '../../pipelines/exports/export-deps.ts';
import { childProcessOptions } from '../engines/child-of-suite.ts';
import { until } from '../infra/until.ts';
import type { Death } from '../pipelines/exports/deaths.ts';
import type { ExportsUnderTest } from '../pipelines/exports/exports-under-test.ts';

const fixture = fileURLToPath(new URL('./export-worker.fixture.ts', import.meta.url));

/** Options of an export worker process. */
export interface WorkerOptions {
  readonly clickhouseUrl: string;
  readonly clickhouseCluster: string | undefined;
  readonly databaseUrl: string;
  readonly redisUrl?: string | undefined;
  readonly bucketRoot: string;
  readonly workFolder: string;
  readonly limits: Partial<ExportLimits>;
  /** The step at which the process kills itself, or sends a message and waits until it may continue. */
  readonly at?: Death | undefined;
  readonly does?: 'die' | 'wait' | undefined;
}

export interface ExportWorker {
  /** Resolves when the process waits at its step. */
  arrived(): Promise<void>;
  resume(): void;
  /** Log output of the process. */
  output(): string;
  /** Sends SIGKILL. */
  kill(): void;
  readonly exited: Promise<NodeJS.Signals | null>;
}

/** Starts processes with only the export workers of a workshop; `end` kills the remaining ones. */
export function exportWorkers(shop: () => ExportsUnderTest) {
  const running = new Set<ChildProcess>();
  return {
    start(
      options: Pick<WorkerOptions, 'at' | 'does'> & { readonly limits?: Partial<ExportLimits> } = {},
    ): ExportWorker {
      const { stores, workRoot, bucketRoot, limits } = shop();
      const { clickhouseUrl, databaseUrl, environment } = stores;
      const workerOptions: WorkerOptions = {
        clickhouseUrl,
        clickhouseCluster: environment.RUNLAKE_CLICKHOUSE_CLUSTER,
        databaseUrl,
        redisUrl: environment.RUNLAKE_REDIS_URL,
        bucketRoot,
        workFolder: join(workRoot, 'processes'),
        limits: { exportSliceRows: limits.exportSliceRows, exportLeaseMs: 3_000, ...options.limits },
        at: options.at,
        does: options.does,
      };
      const child = spawn(process.execPath, [...childProcessOptions, fixture, JSON.stringify(workerOptions)], {
        stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
      });
      running.add(child);
      let output = '';
      child.stderr?.setEncoding('utf8').on('data', (text: string) => {
        output += text;
      });
      let hasArrived = false;
      child.on('message', () => {
        hasArrived = true;
      });
      const exited = once(child, 'exit').then(([, signal]) => {
        running.delete(child);
        return signal as NodeJS.Signals | null;
      });
      return {
        arrived: () => until('the worker to reach its step', () => hasArrived, 90_000),
        resume: () => void child.send('go on'),
        output: () => output,
        kill: () => void child.kill('SIGKILL'),
        exited,
      };
    },
    async end(): Promise<void> {
      for (const child of running) child.kill('SIGKILL');
      await until('the workers to exit', () => running.size === 0);
    },
  };
}
