import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { ExportLimits } from '../../pipelines/exports/export-deps.ts';
import { childOfSuite } from '../engines/child-of-suite.ts';
import { until } from '../infra/until.ts';
import type { Death } from '../pipelines/exports/deaths.ts';
import type { Workshop } from '../pipelines/exports/workshop.ts';

const fixture = fileURLToPath(new URL('./export-worker.fixture.ts', import.meta.url));

/** What a process that writes exports is told. */
export interface ToldToWorker {
  readonly clickhouseUrl: string;
  readonly databaseUrl: string;
  readonly redisUrl?: string | undefined;
  readonly bucketRoot: string;
  readonly workFolder: string;
  readonly limits: Partial<ExportLimits>;
  /** There it kills itself, or says so and waits until it is told to go on. */
  readonly at?: Death | undefined;
  readonly does?: 'die' | 'wait' | undefined;
}

export interface ExportWorker {
  /** Resolves when it is where it waits. */
  arrived(): Promise<void>;
  goOn(): void;
  /** What it has logged. */
  output(): string;
  /** SIGKILL. */
  kill(): void;
  readonly exited: Promise<NodeJS.Signals | null>;
}

/** Starts processes with the workers of a workshop's exports and nothing else; `end` kills those that are left. */
export function exportWorkers(shop: () => Workshop) {
  const running = new Set<ChildProcess>();
  return {
    start(options: Pick<ToldToWorker, 'at' | 'does'> & { readonly limits?: Partial<ExportLimits> } = {}): ExportWorker {
      const { stores, workRoot, bucketRoot, limits } = shop();
      const { clickhouseUrl, databaseUrl, environment } = stores;
      const told: ToldToWorker = {
        clickhouseUrl,
        databaseUrl,
        redisUrl: environment.RUNLAKE_REDIS_URL,
        bucketRoot,
        workFolder: join(workRoot, 'processes'),
        limits: { exportSliceRows: limits.exportSliceRows, exportLeaseMs: 3_000, ...options.limits },
        at: options.at,
        does: options.does,
      };
      const child = spawn(process.execPath, [...childOfSuite, fixture, JSON.stringify(told)], {
        stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
      });
      running.add(child);
      let output = '';
      child.stderr?.setEncoding('utf8').on('data', (text: string) => {
        output += text;
      });
      let isThere = false;
      child.on('message', () => {
        isThere = true;
      });
      const exited = once(child, 'exit').then(([, signal]) => {
        running.delete(child);
        return signal as NodeJS.Signals | null;
      });
      return {
        arrived: () => until('the worker is there', () => isThere, 90_000),
        goOn: () => void child.send('go on'),
        output: () => output,
        kill: () => void child.kill('SIGKILL'),
        exited,
      };
    },
    async end(): Promise<void> {
      for (const child of running) child.kill('SIGKILL');
      await until('they are gone', () => running.size === 0);
    },
  };
}
