import type { AppRoute } from '../app/app-route.ts';
import type { GraphNodes } from '../graphs/graph-nodes.ts';
import { GraphWorker, type GraphWorkerOptions, type Verdict } from './graph-worker.ts';
import type { FromWorker, ToWorker } from './worker-messages.ts';

export interface KeptWorkerHooks {
  /** Also after each restart. */
  readonly onReady: (
    faults: Readonly<Record<string, string>>,
    routes: readonly AppRoute[],
    nodes: Readonly<Record<string, GraphNodes>>,
  ) => void;
  /** @throws WORKER_PROTOCOL_VIOLATED where no worker of this kind sends that message now. */
  readonly onMessage: (message: FromWorker) => void;
  /** A process has gone; another follows by itself, unless it was stopped. */
  readonly onGone: (verdict: Verdict) => void;
}

const firstPauseMs = 100;
const longestPauseMs = 10_000;
/** What ran so long is started again at once. */
const healthyAfterMs = 5_000;

/**
 * Keeps one worker process running.
 *
 * Invariant: at most one process at a time, none after `stop` has resolved. 1. A process is launched. 2. It gets ready and works. 3. It
 * goes; `onGone` is told. 4. Another is launched: at once, or, if it did not last, after 0.1 s, doubled up to 10 s.
 */
export class KeptWorker {
  readonly #options: () => Omit<GraphWorkerOptions, 'onMessage' | 'onGone'>;
  readonly #hooks: KeptWorkerHooks;
  #worker: GraphWorker | undefined;
  #ready = false;
  #failures = 0;
  #stopped = false;
  #pause: NodeJS.Timeout | undefined;
  #whenGone: (() => void)[] = [];

  /** `options` is asked at each launch. */
  constructor(options: () => Omit<GraphWorkerOptions, 'onMessage' | 'onGone'>, hooks: KeptWorkerHooks) {
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

  tell(message: ToWorker): void {
    this.#worker?.tell(message);
  }

  kill(blame: Verdict['blame'], reason: string): void {
    this.#worker?.kill(blame, reason);
  }

  /** Kills it and starts no other. Resolves when it has gone. */
  stop(reason: string): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#pause);
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
          this.#hooks.onReady(message.faults, message.routes, message.nodes);
        } else this.#hooks.onMessage(message);
      },
      onGone: (verdict) => {
        this.#worker = undefined;
        this.#ready = false;
        if (performance.now() - startedAtMs > healthyAfterMs) this.#failures = 0;
        this.#hooks.onGone(verdict);
        for (const resolve of this.#whenGone.splice(0)) resolve();
        if (this.#stopped) return;
        const pauseMs = this.#failures === 0 ? 0 : Math.min(firstPauseMs * 2 ** (this.#failures - 1), longestPauseMs);
        this.#failures += 1;
        this.#pause = setTimeout(() => this.#launch(), pauseMs);
      },
    });
  }
}
