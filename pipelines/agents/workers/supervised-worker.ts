import type { AppRoute } from '../app/app-route.ts';
import type { GraphNodes } from '../graphs/graph-nodes.ts';
import { GraphWorker, type GraphWorkerOptions, type WorkerExit } from './graph-worker.ts';
import type { FromWorker, ToWorker } from './worker-messages.ts';

export interface SupervisedWorkerHooks {
  /** Called after the first start and after each restart. */
  readonly onReady: (
    loadErrors: Readonly<Record<string, string>>,
    routes: readonly AppRoute[],
    nodes: Readonly<Record<string, GraphNodes>>,
  ) => void;
  /** @throws WORKER_PROTOCOL_VIOLATED if a worker of this kind must not send that message now. */
  readonly onMessage: (message: FromWorker) => void;
  /** Called when a process has ended. A new process starts by itself, unless `stop` was called. */
  readonly onExit: (exit: WorkerExit) => void;
}

const minBackoffMs = 100;
const maxBackoffMs = 10_000;
/** A process that ran at least this long is restarted without backoff. */
const healthyAfterMs = 5_000;

/**
 * Supervises one worker process: restarts it whenever it ends.
 *
 * Invariant: at most one process exists at a time, and none after `stop` has resolved.
 *
 *   1. The supervisor launches a process.
 *   2. The process becomes ready and works.
 *   3. The process ends, and the supervisor calls `onExit`.
 *   4. The supervisor launches a new process. The first restart is immediate. Each further restart follows a backoff of
 *      0.1 s that doubles up to 10 s, until a process has run for five seconds.
 */
export class SupervisedWorker {
  readonly #options: () => Omit<GraphWorkerOptions, 'onMessage' | 'onExit'>;
  readonly #hooks: SupervisedWorkerHooks;
  #worker: GraphWorker | undefined;
  #ready = false;
  #failures = 0;
  #stopped = false;
  #restartTimer: NodeJS.Timeout | undefined;
  #whenGone: (() => void)[] = [];

  /** Starts the first process. `options` is called for each launch. */
  constructor(options: () => Omit<GraphWorkerOptions, 'onMessage' | 'onExit'>, hooks: SupervisedWorkerHooks) {
    this.#options = options;
    this.#hooks = hooks;
    this.#launch();
  }

  get ready(): boolean {
    return this.#ready;
  }

  get pid(): number | undefined {
    return this.#worker?.pid;
  }

  send(message: ToWorker): void {
    this.#worker?.send(message);
  }

  kill(blame: WorkerExit['blame'], reason: string): void {
    this.#worker?.kill(blame, reason);
  }

  /** Kills the process and does not restart it. Resolves when the process has ended. */
  stop(reason: string): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#restartTimer);
    if (this.#worker === undefined) return Promise.resolve();
    const gone = new Promise<void>((resolve) => this.#whenGone.push(resolve));
    this.#worker.kill('outside', reason);
    return gone;
  }

  #launch(): void {
    const startedAtMs = performance.now();
    this.#worker = new GraphWorker({
      ...this.#options(),
      onMessage: (message) => {
        if (message.kind === 'ready') {
          this.#ready = true;
          this.#hooks.onReady(message.loadErrors, message.routes, message.nodes);
        } else this.#hooks.onMessage(message);
      },
      onExit: (exit) => {
        this.#worker = undefined;
        this.#ready = false;
        if (performance.now() - startedAtMs > healthyAfterMs) this.#failures = 0;
        this.#hooks.onExit(exit);
        for (const resolve of this.#whenGone.splice(0)) resolve();
        if (this.#stopped) return;
        const backoffMs = this.#failures === 0 ? 0 : Math.min(minBackoffMs * 2 ** (this.#failures - 1), maxBackoffMs);
        this.#failures += 1;
        this.#restartTimer = setTimeout(() => this.#launch(), backoffMs);
      },
    });
  }
}
