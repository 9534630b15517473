import { runlakeError } from '../../../../infra/errors/runlake-error.ts';
import type { GraphsFile } from '../../graphs/graphs-file.ts';
import { WorkerHandle, type WorkerHooks, type WorkerOptions } from './worker-handle.ts';

const fieldPaths = { auth: 'auth.path', app: 'http.app' } as const;
const loadTimeoutMs = 120_000;

export interface ModuleWorkerOptions {
  readonly part: keyof typeof fieldPaths;
  /** The part of the worker setup that names the module and the server URL for its code. */
  readonly setup: Pick<WorkerOptions['setup'], 'auth' | 'app' | 'serverUrl'>;
  readonly file: Pick<GraphsFile, 'path' | 'folder' | 'env'>;
  readonly environment: Readonly<Record<string, string>>;
  readonly accounts?: WorkerOptions['accounts'];
  readonly heartbeatTimeoutMs: number;
  readonly onLine: WorkerOptions['onLine'];
  /** `onReady` is called only if the module is usable. `onExit` is not called for the process of an unusable module. */
  readonly hooks: WorkerHooks;
}

/**
 * Starts a worker for a module that is not a graph: custom authentication or the custom app.
 *
 * Resolves when the module is loaded.
 *
 * @throws GRAPHS_FILE_INVALID if the module is unusable; then no process remains.
 */
export async function openModuleWorker(options: ModuleWorkerOptions): Promise<WorkerHandle> {
  const { part, setup, file, environment, accounts, heartbeatTimeoutMs, onLine, hooks } = options;
  const unusable = (reason: string) =>
    runlakeError('GRAPHS_FILE_INVALID', { file: file.path, location: fieldPaths[part], reason });
  let hasGivenUp = false;
  let opened!: () => void;
  let failed!: (error: unknown) => void;
  const open = new Promise<void>((resolve, reject) => {
    opened = resolve;
    failed = reject;
  });
  const worker = new WorkerHandle(
    () => ({
      setup: {
        graphs: [],
        ...setup,
        maxConnections: 1,
        maxEventBytes: 1,
        windowBytes: 1,
        maxBufferedBytes: 1,
        heartbeatMs: Math.min(1_000, heartbeatTimeoutMs / 4),
      },
      folder: file.folder,
      environment: { ...environment, ...file.env },
      accounts,
      heapMegabytes: undefined,
      heartbeatTimeoutMs,
      loadTimeoutMs,
      onLine,
    }),
    {
      onReady: (loadErrors, routes, nodes) => {
        const reason = loadErrors[part];
        if (reason !== undefined) {
          failed(unusable(reason));
          // If an earlier process has loaded the module, the cause may be temporary: the handle starts another process.
          return worker.kill('external', `its module cannot be loaded: ${reason}`);
        }
        hooks.onReady(loadErrors, routes, nodes);
        opened();
      },
      onMessage: hooks.onMessage,
      onExit: (exit) => {
        if (!hasGivenUp) hooks.onExit(exit);
        failed(unusable(`its process ended: ${exit.reason}`));
      },
    },
  );
  try {
    await open;
  } catch (error) {
    hasGivenUp = true;
    await worker.stop('its module is unusable');
    throw error;
  }
  return worker;
}
