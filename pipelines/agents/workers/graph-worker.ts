/**
 * The parent process's handle of one worker process.
 *
 * Invariant: `onExit` is called once for each process, after it has exited. The reported cause and reason depend only
 * on what the parent process observes: the last message, the exit code or signal, whether the parent process killed the
 * process, and protocol violations. No message of a worker makes the parent process throw (`worker-child.ts`).
 *
 *   1. The parent process spawns the process and sends `setup`. The process has `loadTimeoutMs` to import all graphs.
 *   2. Each message, including a heartbeat, proves that the event loop of the worker is not blocked. After
 *      `heartbeatTimeoutMs` without a message the parent process kills the process.
 *   3. An invalid message, a message about a graph that was not assigned to the process, a message that the receiver
 *      refuses, or too many messages end the process with cause `worker`.
 *   4. After the process has exited, the parent process calls `onExit` with cause and reason. It delivers no messages
 *      afterwards.
 */
import { fileURLToPath } from 'node:url';
import type { AccountSource } from '../../../infra/isolation/process-accounts.ts';
import type { AppRoute } from '../app/app-route.ts';
import type { GraphNodes } from '../graphs/graph-nodes.ts';
import { computeWorkerFrameLimits, violation } from './frames.ts';
import {
  decodeMessage,
  type FromWorker,
  type SerializedError,
  type ToWorker,
  type WorkerSetup,
} from './message-codec.ts';
import { needsTypescript, typescriptLoader } from './read-typescript.ts';
import { toRunlakeError } from './serialized-error.ts';
import { type ChildEnd, WorkerChild } from './worker-child.ts';

export interface GraphWorkerOptions {
  readonly setup: WorkerSetup;
  /** Folder of the langgraph.json. It is the working directory of graph code. */
  readonly folder: string;
  /** All environment variables that graph code receives. */
  readonly environment: Readonly<Record<string, string>>;
  /** Provider of operating-system accounts for workers. If absent, the worker runs under the account of Runlake. */
  readonly accounts?: AccountSource | undefined;
  readonly heapMegabytes: number | undefined;
  readonly heartbeatTimeoutMs: number;
  readonly loadTimeoutMs: number;
  /**
   * Handles a message of the worker.
   *
   * @throws WORKER_PROTOCOL_VIOLATED if a worker of this kind must not send that message now.
   */
  readonly onMessage: (message: FromWorker) => void;
  readonly onExit: (exit: WorkerExit) => void;
  /** Receives each line that graph code writes to standard output or standard error. */
  readonly onLine: (line: string) => void;
}

export interface WorkerExit {
  /**
   * Cause of the exit. `worker`: code in the process caused it; `external`: an external signal or the parent process
   * caused it.
   */
  readonly cause: 'worker' | 'external';
  readonly reason: string;
  /** Id of the graph that the process was importing when it exited. */
  readonly whileLoading: string | undefined;
  /** Error that prevents every process of this langgraph.json from becoming ready. */
  readonly unusable?: SerializedError;
}

/** Signals that come from outside the process. All other signals are caused by the process itself. */
const externalSignals = new Set(['SIGKILL', 'SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT']);
/**
 * Maximum number of messages between two checks, which are at most one second apart. `chunks` messages are not counted,
 * because the send window limits them.
 */
const maxMessages = 20_000;

export class GraphWorker {
  readonly #options: GraphWorkerOptions;
  readonly #child: WorkerChild;
  readonly #checkTimer: NodeJS.Timeout;
  readonly #startedAtMs = performance.now();
  #lastMessageAtMs = performance.now();
  #lastCheckAtMs = performance.now();
  #messages = 0;
  #isReady = false;
  #loading: string | undefined;
  #dyingReason: string | undefined;
  #unusable: SerializedError | undefined;
  #killed: Pick<WorkerExit, 'cause' | 'reason'> | undefined;
  #hasExited = false;

  constructor(options: GraphWorkerOptions) {
    this.#options = options;
    const { setup, folder, environment, accounts, heapMegabytes, heartbeatTimeoutMs, onLine } = options;
    const fromSource = import.meta.url.endsWith('.ts');
    const findTypescriptPreload = () => new URL('./typescript-preload.js', import.meta.url).href;
    const first = fromSource ? typescriptLoader() : needsTypescript(setup) ? findTypescriptPreload() : undefined;
    this.#child = new WorkerChild({
      program: fileURLToPath(new URL(`./worker-process.${fromSource ? 'ts' : 'js'}`, import.meta.url)),
      execArgv: [
        ...(heapMegabytes === undefined ? [] : [`--max-old-space-size=${heapMegabytes}`]),
        ...(first === undefined ? [] : ['--import', first]),
      ],
      folder,
      environment,
      accounts,
      limits: computeWorkerFrameLimits(setup.maxEventBytes),
      onFrame: (frame) => this.#receive(decodeMessage(frame, setup.maxEventBytes)),
      onLine,
      onExit: (end) => {
        this.#hasExited = true;
        clearInterval(this.#checkTimer);
        options.onExit(this.#describeExit(end));
      },
    });
    this.#checkTimer = setInterval(() => this.#checkLiveness(), Math.min(1_000, heartbeatTimeoutMs / 4));
    this.send({ kind: 'setup', setup });
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  /** Sends a message. All messages of one turn of the event loop are written together. */
  send(message: ToWorker): void {
    this.#child.send(message);
  }

  kill(cause: WorkerExit['cause'], reason: string): void {
    if (this.#hasExited) return;
    this.#killed ??= { cause, reason };
    this.#child.kill();
  }

  #receive(message: FromWorker): void {
    this.#lastMessageAtMs = performance.now();
    this.#validate(message);
    if (message.kind === 'loading') this.#loading = message.graphId;
    else if (message.kind === 'dying') this.#dyingReason = message.reason;
    else if (message.kind === 'unusable') this.#unusable = message.error;
    else if (message.kind === 'ready') {
      this.#isReady = true;
      this.#loading = undefined;
      this.#options.onMessage(message);
    } else if (message.kind !== 'heartbeat') this.#options.onMessage(message);
  }

  /** @throws WORKER_PROTOCOL_VIOLATED */
  #validate(message: FromWorker): void {
    const { kind } = message;
    if (kind !== 'chunks') {
      this.#messages += 1;
      if (this.#messages > maxMessages) throw violation(`${this.#messages} messages within a second`);
    }
    const { graphs, loadErrors = {} } = this.#options.setup;
    const isGraph = (id: string) => graphs.some(({ graphId }) => graphId === id);
    if (kind === 'loading' && !isGraph(message.graphId)) throw violation('a graph that it does not have');
    if (kind === 'ready') {
      const mayFail = (id: string) => isGraph(id) || Object.hasOwn(loadErrors, id) || id === 'auth' || id === 'app';
      if (!Object.keys(message.loadErrors).every(mayFail) || !Object.keys(message.nodes).every(isGraph)) {
        throw violation('a graph that it does not have');
      }
    }
    const isStartupMessage = kind === 'loading' || kind === 'ready';
    const isAlwaysAllowed = kind === 'heartbeat' || kind === 'dying' || kind === 'unusable';
    if (!isAlwaysAllowed && isStartupMessage === this.#isReady) throw violation(`a message '${kind}' out of turn`);
  }

  #checkLiveness(): void {
    const now = performance.now();
    const { heartbeatTimeoutMs, loadTimeoutMs } = this.#options;
    this.#messages = 0;
    // If the parent process itself was blocked, it may not have read messages of the worker yet.
    if (now - this.#lastCheckAtMs > heartbeatTimeoutMs / 2) this.#lastMessageAtMs = now;
    this.#lastCheckAtMs = now;
    if (!this.#isReady) {
      if (now - this.#startedAtMs > loadTimeoutMs) {
        this.kill('worker', `its graphs were not loaded within ${loadTimeoutMs / 1_000} s`);
      }
    } else if (now - this.#lastMessageAtMs > heartbeatTimeoutMs) {
      this.kill('worker', `its event loop did not turn for ${heartbeatTimeoutMs / 1_000} s`);
    }
  }

  #describeExit({ code, signal, error, violation }: ChildEnd): WorkerExit {
    const whileLoading = this.#isReady ? undefined : this.#loading;
    if (this.#killed !== undefined) return { ...this.#killed, whileLoading };
    if (violation !== undefined) return { cause: 'worker', reason: `it was ended: ${violation}`, whileLoading };
    if (this.#unusable !== undefined) {
      return {
        cause: 'worker',
        reason: toRunlakeError(this.#unusable).message,
        whileLoading,
        unusable: this.#unusable,
      };
    }
    if (error !== undefined) return { cause: 'external', reason: `it did not start: ${error.message}`, whileLoading };
    if (this.#dyingReason !== undefined) {
      return { cause: 'worker', reason: `an error was thrown outside of any run: ${this.#dyingReason}`, whileLoading };
    }
    if (signal !== null) {
      const cause = externalSignals.has(signal) ? 'external' : 'worker';
      const meaning = signal === 'SIGABRT' ? ' (usually out of memory)' : '';
      return { cause, reason: `it ended by ${signal}${meaning}`, whileLoading };
    }
    return { cause: 'worker', reason: `it ended with code ${code}`, whileLoading };
  }
}

export interface SupervisedWorkerHooks {
  /** Called after the first start and after each restart. */
  readonly onReady: (
    loadErrors: Readonly<Record<string, string>>,
    routes: readonly AppRoute[],
    nodes: Readonly<Record<string, GraphNodes>>,
  ) => void;
  /**
   * Handles a message of the worker.
   *
   * @throws WORKER_PROTOCOL_VIOLATED if a worker of this kind must not send that message now.
   */
  readonly onMessage: (message: FromWorker) => void;
  /** Called when a process has ended. A new process starts automatically, unless `stop` was called. */
  readonly onExit: (exit: WorkerExit) => void;
}

const minBackoffMs = 100;
const maxBackoffMs = 10_000;
/** Minimum run time after which a process is restarted without backoff. */
const minHealthyMs = 5_000;

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
  #isReady = false;
  #failures = 0;
  #isStopped = false;
  #restartTimer: NodeJS.Timeout | undefined;
  #whenGone: (() => void)[] = [];

  /** Starts the first process. `options` is called before each launch. */
  constructor(options: () => Omit<GraphWorkerOptions, 'onMessage' | 'onExit'>, hooks: SupervisedWorkerHooks) {
    this.#options = options;
    this.#hooks = hooks;
    this.#launch();
  }

  get ready(): boolean {
    return this.#isReady;
  }

  get pid(): number | undefined {
    return this.#worker?.pid;
  }

  send(message: ToWorker): void {
    this.#worker?.send(message);
  }

  kill(cause: WorkerExit['cause'], reason: string): void {
    this.#worker?.kill(cause, reason);
  }

  /** Kills the process and does not restart it. Resolves when the process has ended. */
  stop(reason: string): Promise<void> {
    this.#isStopped = true;
    clearTimeout(this.#restartTimer);
    if (this.#worker === undefined) return Promise.resolve();
    const gone = new Promise<void>((resolve) => this.#whenGone.push(resolve));
    this.#worker.kill('external', reason);
    return gone;
  }

  #launch(): void {
    const startedAtMs = performance.now();
    this.#worker = new GraphWorker({
      ...this.#options(),
      onMessage: (message) => {
        if (message.kind === 'ready') {
          this.#isReady = true;
          this.#hooks.onReady(message.loadErrors, message.routes, message.nodes);
        } else this.#hooks.onMessage(message);
      },
      onExit: (exit) => {
        this.#worker = undefined;
        this.#isReady = false;
        if (performance.now() - startedAtMs > minHealthyMs) this.#failures = 0;
        this.#hooks.onExit(exit);
        for (const resolve of this.#whenGone.splice(0)) resolve();
        if (this.#isStopped) return;
        const backoffMs = this.#failures === 0 ? 0 : Math.min(minBackoffMs * 2 ** (this.#failures - 1), maxBackoffMs);
        this.#failures += 1;
        this.#restartTimer = setTimeout(() => this.#launch(), backoffMs);
      },
    });
  }
}
