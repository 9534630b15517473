/**
 * The parent process's handle of one worker: starts its process, watches it, and restarts it whenever it ends.
 *
 * Invariant: at most one process exists at a time, and none after `stop` has resolved. `onExit` is called once for each
 * process, after it has exited. Cause and reason depend only on what the parent process observes: the last message, exit
 * code or signal, whether the parent process killed the process, and protocol violations. No message of a worker makes
 * the parent process throw (`project-process.ts`).
 *
 *   1. The handle launches a process and sends `setup`. The process has `loadTimeoutMs` to import all graphs.
 *   2. Each message, including heartbeats, proves that the event loop of the worker is not blocked. After
 *      `heartbeatTimeoutMs` without a message the handle kills the process.
 *   3. An invalid message, a message about a graph that the process was not given, a message that the receiver refuses,
 *      or too many messages end the process with cause `worker`.
 *   4. After the process has exited, the handle calls `onExit` with cause and reason. It delivers no message afterwards.
 *   5. The handle launches a new process. The first restart is immediate. Each further restart follows a backoff of
 *      0.1 s that doubles up to 10 s, until a process has run for five seconds.
 */
import { fileURLToPath } from 'node:url';
import type { AccountSource } from '../../../../infra/isolation/process-accounts.ts';
import type { AppRoute } from '../../app/app-route.ts';
import type { GraphNodes } from '../../graphs/graph-nodes.ts';
import { computeWorkerFrameLimits, createViolationError } from '../frames.ts';
import { decodeMessage } from '../message-codec.ts';
import type { MessageFromWorker, MessageToWorker, SerializedError, WorkerSetup } from '../messages.ts';
import { getTypescriptLoaderUrl, needsTypescript } from '../read-typescript.ts';
import { toRunlakeError } from '../serialized-error.ts';
import { type ProcessEnd, ProjectProcess } from './project-process.ts';

export interface WorkerOptions {
  readonly setup: WorkerSetup;
  /** Folder of the langgraph.json; the working directory of graph code. */
  readonly folder: string;
  /** All environment variables that graph code receives. */
  readonly environment: Readonly<Record<string, string>>;
  /** Source of operating-system accounts for workers. If absent, the worker runs under the account of Runlake. */
  readonly accounts?: AccountSource | undefined;
  readonly heapMegabytes: number | undefined;
  readonly heartbeatTimeoutMs: number;
  readonly loadTimeoutMs: number;
  /** Receives each line that graph code writes to standard output or standard error. */
  readonly onLine: (line: string) => void;
}

export interface WorkerHooks {
  /** Called after the first start and after each restart. */
  readonly onReady: (
    loadErrors: Readonly<Record<string, string>>,
    routes: readonly AppRoute[],
    nodes: Readonly<Record<string, GraphNodes>>,
  ) => void;
  /** @throws WORKER_PROTOCOL_VIOLATED if a worker of this kind must not send that message now. */
  readonly onMessage: (message: MessageFromWorker) => void;
  /** Called when a process has ended. A new process starts by itself, unless `stop` was called. */
  readonly onExit: (exit: WorkerExit) => void;
}

export interface WorkerExit {
  /** `worker`: code in the process caused its end; `external`: an external signal or the parent process ended it. */
  readonly cause: 'worker' | 'external';
  readonly reason: string;
  /** Id of the graph that the process was importing when it ended. */
  readonly whileLoading: string | undefined;
  /** Error that prevents every process of this langgraph.json from becoming ready. */
  readonly unusable?: SerializedError;
}

/** Signals that come from outside the process; the process itself causes all others. */
const externalSignals = new Set(['SIGKILL', 'SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT']);
/**
 * Maximum number of messages between two checks, which are at most one second apart. Excludes `chunks`, because the
 * send window limits them.
 */
const maxMessages = 20_000;
const minBackoffMs = 100;
const maxBackoffMs = 10_000;
/** A process that ran at least this long is restarted without backoff. */
const minHealthyMs = 5_000;

/** The current process of a worker, and what the parent process has observed of it. */
interface Launched {
  readonly process: ProjectProcess;
  readonly options: WorkerOptions;
  readonly startedAtMs: number;
  lastMessageAtMs: number;
  lastCheckAtMs: number;
  messages: number;
  isReady: boolean;
  loading?: string | undefined;
  dyingReason?: string;
  unusable?: SerializedError;
  killed?: Pick<WorkerExit, 'cause' | 'reason'>;
}

export class WorkerHandle {
  readonly #options: () => WorkerOptions;
  readonly #hooks: WorkerHooks;
  #launched: Launched | undefined;
  #failures = 0;
  #isStopped = false;
  #restartTimer: NodeJS.Timeout | undefined;
  #whenGone: (() => void)[] = [];

  /** Starts the first process. `options` is called for each launch. */
  constructor(options: () => WorkerOptions, hooks: WorkerHooks) {
    this.#options = options;
    this.#hooks = hooks;
    this.#launch();
  }

  /** Whether the process has loaded its modules and is not being killed. */
  get ready(): boolean {
    return this.#launched?.isReady === true && this.#launched.killed === undefined;
  }

  get pid(): number | undefined {
    return this.#launched?.process.pid;
  }

  /** Sends a message. Messages of one turn of the event loop are written together. */
  send(message: MessageToWorker): void {
    this.#launched?.process.send(message);
  }

  kill(cause: WorkerExit['cause'], reason: string): void {
    if (this.#launched === undefined) return;
    this.#launched.killed ??= { cause, reason };
    this.#launched.process.kill();
  }

  /** Kills the process and does not restart it. Resolves when the process has ended. */
  stop(reason: string): Promise<void> {
    this.#isStopped = true;
    clearTimeout(this.#restartTimer);
    if (this.#launched === undefined) return Promise.resolve();
    const gone = new Promise<void>((resolve) => this.#whenGone.push(resolve));
    this.kill('external', reason);
    return gone;
  }

  #launch(): void {
    const options = this.#options();
    const { setup, folder, environment, accounts, heapMegabytes, heartbeatTimeoutMs, onLine } = options;
    const fromSource = import.meta.url.endsWith('.ts');
    const findTypescriptPreload = () => new URL('../child/typescript-preload.js', import.meta.url).href;
    const first = fromSource ? getTypescriptLoaderUrl() : needsTypescript(setup) ? findTypescriptPreload() : undefined;
    const now = performance.now();
    const process = new ProjectProcess({
      program: fileURLToPath(new URL(`../child/worker-process.${fromSource ? 'ts' : 'js'}`, import.meta.url)),
      execArgv: [
        ...(heapMegabytes === undefined ? [] : [`--max-old-space-size=${heapMegabytes}`]),
        ...(first === undefined ? [] : ['--import', first]),
      ],
      folder,
      environment,
      accounts,
      limits: computeWorkerFrameLimits(setup.maxEventBytes),
      onFrame: (frame) => this.#receive(launched, decodeMessage(frame, setup.maxEventBytes)),
      onLine,
      onExit: (end) => {
        clearInterval(checkTimer);
        this.#launched = undefined;
        this.#handleExit(launched, end);
      },
    });
    const launched: Launched = {
      process,
      options,
      startedAtMs: now,
      lastMessageAtMs: now,
      lastCheckAtMs: now,
      messages: 0,
      isReady: false,
    };
    this.#launched = launched;
    const checkTimer = setInterval(() => this.#checkLiveness(launched), Math.min(1_000, heartbeatTimeoutMs / 4));
    process.send({ kind: 'setup', setup } satisfies MessageToWorker);
  }

  #handleExit(launched: Launched, end: ProcessEnd): void {
    if (performance.now() - launched.startedAtMs > minHealthyMs) this.#failures = 0;
    this.#hooks.onExit(describeExit(launched, end));
    for (const resolve of this.#whenGone.splice(0)) resolve();
    if (this.#isStopped) return;
    const backoffMs = this.#failures === 0 ? 0 : Math.min(minBackoffMs * 2 ** (this.#failures - 1), maxBackoffMs);
    this.#failures += 1;
    this.#restartTimer = setTimeout(() => this.#launch(), backoffMs);
  }

  #receive(launched: Launched, message: MessageFromWorker): void {
    launched.lastMessageAtMs = performance.now();
    validate(launched, message);
    if (message.kind === 'loading') launched.loading = message.graphId;
    else if (message.kind === 'dying') launched.dyingReason = message.reason;
    else if (message.kind === 'unusable') launched.unusable = message.error;
    else if (message.kind === 'ready') {
      launched.isReady = true;
      launched.loading = undefined;
      this.#hooks.onReady(message.loadErrors, message.routes, message.nodes);
    } else if (message.kind !== 'heartbeat') this.#hooks.onMessage(message);
  }

  #checkLiveness(launched: Launched): void {
    const now = performance.now();
    const { heartbeatTimeoutMs, loadTimeoutMs } = launched.options;
    launched.messages = 0;
    // If the parent process itself was blocked, messages of the worker may still be unread.
    if (now - launched.lastCheckAtMs > heartbeatTimeoutMs / 2) launched.lastMessageAtMs = now;
    launched.lastCheckAtMs = now;
    if (!launched.isReady) {
      if (now - launched.startedAtMs > loadTimeoutMs) {
        this.kill('worker', `its graphs were not loaded within ${loadTimeoutMs / 1_000} s`);
      }
    } else if (now - launched.lastMessageAtMs > heartbeatTimeoutMs) {
      this.kill('worker', `its event loop did not turn for ${heartbeatTimeoutMs / 1_000} s`);
    }
  }
}

/** @throws WORKER_PROTOCOL_VIOLATED */
function validate(launched: Launched, message: MessageFromWorker): void {
  const { kind } = message;
  if (kind !== 'chunks') {
    launched.messages += 1;
    if (launched.messages > maxMessages) throw createViolationError(`${launched.messages} messages within a second`);
  }
  const { graphs, loadErrors = {} } = launched.options.setup;
  const isGraph = (id: string) => graphs.some(({ graphId }) => graphId === id);
  if (kind === 'loading' && !isGraph(message.graphId)) throw createViolationError('a graph that it does not have');
  if (kind === 'ready') {
    const mayFail = (id: string) => isGraph(id) || Object.hasOwn(loadErrors, id) || id === 'auth' || id === 'app';
    if (!Object.keys(message.loadErrors).every(mayFail) || !Object.keys(message.nodes).every(isGraph)) {
      throw createViolationError('a graph that it does not have');
    }
  }
  const isStartupMessage = kind === 'loading' || kind === 'ready';
  const isAlwaysAllowed = kind === 'heartbeat' || kind === 'dying' || kind === 'unusable';
  if (!isAlwaysAllowed && isStartupMessage === launched.isReady)
    throw createViolationError(`a message '${kind}' out of turn`);
}

function describeExit(launched: Launched, { code, signal, error, violation }: ProcessEnd): WorkerExit {
  const whileLoading = launched.isReady ? undefined : launched.loading;
  if (launched.killed !== undefined) return { ...launched.killed, whileLoading };
  if (violation !== undefined) return { cause: 'worker', reason: `it was ended: ${violation}`, whileLoading };
  if (launched.unusable !== undefined) {
    const { unusable } = launched;
    return { cause: 'worker', reason: toRunlakeError(unusable).message, whileLoading, unusable };
  }
  if (error !== undefined) return { cause: 'external', reason: `it did not start: ${error.message}`, whileLoading };
  if (launched.dyingReason !== undefined) {
    const reason = `an error was thrown outside of any run: ${launched.dyingReason}`;
    return { cause: 'worker', reason, whileLoading };
  }
  if (signal !== null) {
    const cause = externalSignals.has(signal) ? 'external' : 'worker';
    const meaning = signal === 'SIGABRT' ? ' (usually out of memory)' : '';
    return { cause, reason: `it ended by ${signal}${meaning}`, whileLoading };
  }
  return { cause: 'worker', reason: `it ended with code ${code}`, whileLoading };
}
