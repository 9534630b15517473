import { fault } from '../../../infra/errors/runlake-error.ts';
import type { GraphsFile } from '../graphs/graphs-file.ts';
import type { GraphWorkerOptions } from './graph-worker.ts';
import { KeptWorker, type KeptWorkerHooks } from './kept-worker.ts';

const places = { auth: 'auth.path', app: 'http.app' } as const;
const loadWithinMs = 120_000;

export interface ModuleWorkerOptions {
  readonly part: keyof typeof places;
  /** What of the setup is the module's. */
  readonly setup: Pick<GraphWorkerOptions['setup'], 'auth' | 'app' | 'serverUrl'>;
  readonly file: Pick<GraphsFile, 'path' | 'folder' | 'env'>;
  readonly environment: Readonly<Record<string, string>>;
  readonly accounts?: GraphWorkerOptions['accounts'];
  readonly silentMs: number;
  readonly onLine: GraphWorkerOptions['onLine'];
  /** `onReady` hears of modules that can be used, `onGone` of processes that go by themselves or at the end. */
  readonly hooks: KeptWorkerHooks;
}

/**
 * Starts and keeps a process for one module of a project that is no graph.
 *
 * @returns it once the module is loaded.
 * @throws GRAPHS_FILE_INVALID where it cannot be used; then no process is left.
 */
export async function openModuleWorker(options: ModuleWorkerOptions): Promise<KeptWorker> {
  const { part, setup, file, environment, accounts, silentMs, onLine, hooks } = options;
  const unusable = (reason: string) => fault('GRAPHS_FILE_INVALID', { file: file.path, place: places[part], reason });
  let givenUp = false;
  let opened!: () => void;
  let failed!: (error: unknown) => void;
  const open = new Promise<void>((resolve, reject) => {
    opened = resolve;
    failed = reject;
  });
  const worker = new KeptWorker(
    () => ({
      setup: {
        graphs: [],
        ...setup,
        maxConnections: 1,
        maxEventBytes: 1,
        windowBytes: 1,
        maxBufferedBytes: 1,
        beatMs: Math.min(1_000, silentMs / 4),
      },
      folder: file.folder,
      environment: { ...environment, ...file.env },
      accounts,
      heapMegabytes: undefined,
      silentMs,
      loadWithinMs,
      onLine,
    }),
    {
      onReady: (faults, routes, nodes) => {
        const reason = faults[part];
        if (reason !== undefined) return failed(unusable(reason));
        hooks.onReady(faults, routes, nodes);
        opened();
      },
      onMessage: hooks.onMessage,
      onGone: (verdict) => {
        if (!givenUp) hooks.onGone(verdict);
        failed(unusable(`its process ended: ${verdict.reason}`));
      },
    },
  );
  try {
    await open;
  } catch (error) {
    givenUp = true;
    await worker.stop('it cannot be used');
    throw error;
  }
  return worker;
}
