/**
 * One worker process, seen from the front.
 *
 * Invariant: each process is judged once, when it has gone, and only by what is known here: its last message, its code or signal, whether
 * this process killed it, and whether it broke the protocol. Nothing that it sends can throw in the front (`worker-child.ts`).
 *
 *   1. It is spawned and set up. It has `loadWithinMs` to import all graphs.
 *   2. Every message, and the beat each second, says that its event loop turns. After `silentMs` without any it is killed.
 *   3. A message that is not valid, that names what this process was not given, or that the receiver refuses, ends it with blame `self`.
 *      So do more messages than a worker has reason to send.
 *   4. When it has gone, `onGone` gets the verdict. Nothing of it is heard afterwards.
 */
import { fileURLToPath } from 'node:url';
import type { AccountSource } from '../../../infra/isolation/process-accounts.ts';
import { limitsOfWorker, violation } from './frames.ts';
import { decodeMessage } from './message-codec.ts';
import { needsTypescript, typescriptLoader } from './read-typescript.ts';
import { faultOf } from './refusal.ts';
import { type ChildEnd, WorkerChild } from './worker-child.ts';
import type { FromWorker, Refusal, ToWorker, WorkerSetup } from './worker-messages.ts';

export interface GraphWorkerOptions {
  readonly setup: WorkerSetup;
  /** Of the langgraph.json, in which graph code runs. */
  readonly folder: string;
  /** All that graph code sees. */
  readonly environment: Readonly<Record<string, string>>;
  /** Where its account comes from. Absent: it is that of Runlake. */
  readonly accounts?: AccountSource | undefined;
  readonly heapMegabytes: number | undefined;
  readonly silentMs: number;
  readonly loadWithinMs: number;
  /** @throws WORKER_PROTOCOL_VIOLATED where no worker of this kind sends that message now. */
  readonly onMessage: (message: FromWorker) => void;
  readonly onGone: (verdict: Verdict) => void;
  /** What graph code writes to its standard output and error, line by line. */
  readonly onLine: (line: string) => void;
}

export interface Verdict {
  /** `self`: by what runs in it; `outside`: killed by somebody else, or told to end. */
  readonly blame: 'self' | 'outside';
  readonly reason: string;
  /** The graph whose module was being imported. */
  readonly whileLoading: string | undefined;
  /** Why no process of this langgraph.json can get ready. */
  readonly unfit?: Refusal;
}

/** Signals by which somebody ends a process; the others a process brings on itself. */
const foreignSignals = new Set(['SIGKILL', 'SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT']);
/** Between two looks, a second at most, without the messages of events, which the send window limits. */
const maxMessages = 20_000;

export class GraphWorker {
  readonly #options: GraphWorkerOptions;
  readonly #child: WorkerChild;
  readonly #looking: NodeJS.Timeout;
  readonly #startedAtMs = performance.now();
  #heardAtMs = performance.now();
  #lookedAtMs = performance.now();
  #messages = 0;
  #ready = false;
  #loading: string | undefined;
  #lastWord: string | undefined;
  #unfit: Refusal | undefined;
  #killed: Pick<Verdict, 'blame' | 'reason'> | undefined;
  #gone = false;

  constructor(options: GraphWorkerOptions) {
    this.#options = options;
    const { setup, folder, environment, accounts, heapMegabytes, silentMs, onLine } = options;
    const fromSource = import.meta.url.endsWith('.ts');
    const elsewhere = () => new URL('./typescript-elsewhere.js', import.meta.url).href;
    const first = fromSource ? typescriptLoader() : needsTypescript(setup) ? elsewhere() : undefined;
    this.#child = new WorkerChild({
      program: fileURLToPath(new URL(`./worker-process.${fromSource ? 'ts' : 'js'}`, import.meta.url)),
      execArgv: [
        ...(heapMegabytes === undefined ? [] : [`--max-old-space-size=${heapMegabytes}`]),
        ...(first === undefined ? [] : ['--import', first]),
      ],
      folder,
      environment,
      accounts,
      limits: limitsOfWorker(setup.maxEventBytes),
      onFrame: (frame) => this.#hear(decodeMessage(frame, setup.maxEventBytes)),
      onLine,
      onGone: (end) => {
        this.#gone = true;
        clearInterval(this.#looking);
        options.onGone(this.#judge(end));
      },
    });
    this.#looking = setInterval(() => this.#look(), Math.min(1_000, silentMs / 4));
    this.tell({ kind: 'setup', setup });
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  /** Sent together with what else is sent in this turn of the event loop. */
  tell(message: ToWorker): void {
    this.#child.send(message);
  }

  kill(blame: Verdict['blame'], reason: string): void {
    if (this.#gone) return;
    this.#killed ??= { blame, reason };
    this.#child.kill();
  }

  #hear(message: FromWorker): void {
    this.#heardAtMs = performance.now();
    this.#check(message);
    if (message.kind === 'loading') this.#loading = message.graphId;
    else if (message.kind === 'dying') this.#lastWord = message.reason;
    else if (message.kind === 'unfit') this.#unfit = message.refusal;
    else if (message.kind === 'ready') {
      this.#ready = true;
      this.#loading = undefined;
      this.#options.onMessage(message);
    } else if (message.kind !== 'beat') this.#options.onMessage(message);
  }

  /** @throws WORKER_PROTOCOL_VIOLATED */
  #check(message: FromWorker): void {
    const { kind } = message;
    if (kind !== 'chunks') {
      this.#messages += 1;
      if (this.#messages > maxMessages) throw violation(`${this.#messages} messages within a second`);
    }
    const { graphs, faults = {} } = this.#options.setup;
    const isGraph = (id: string) => graphs.some(({ graphId }) => graphId === id);
    if (kind === 'loading' && !isGraph(message.graphId)) throw violation('a graph that it does not have');
    if (kind === 'ready') {
      const mayFail = (id: string) => isGraph(id) || Object.hasOwn(faults, id) || id === 'auth' || id === 'app';
      if (!Object.keys(message.faults).every(mayFail) || !Object.keys(message.nodes).every(isGraph)) {
        throw violation('a graph that it does not have');
      }
    }
    const isOfStart = kind === 'loading' || kind === 'ready';
    const isOfBoth = kind === 'beat' || kind === 'dying' || kind === 'unfit';
    if (!isOfBoth && isOfStart === this.#ready) throw violation(`a message '${kind}' out of turn`);
  }

  #look(): void {
    const now = performance.now();
    const { silentMs, loadWithinMs } = this.#options;
    this.#messages = 0;
    // If this process itself did nothing for a while, it may not have heard what was said.
    if (now - this.#lookedAtMs > silentMs / 2) this.#heardAtMs = now;
    this.#lookedAtMs = now;
    if (!this.#ready) {
      if (now - this.#startedAtMs > loadWithinMs) {
        this.kill('self', `its graphs were not loaded within ${loadWithinMs / 1_000} s`);
      }
    } else if (now - this.#heardAtMs > silentMs) {
      this.kill('self', `its event loop did not turn for ${silentMs / 1_000} s`);
    }
  }

  #judge({ code, signal, error, violation }: ChildEnd): Verdict {
    const whileLoading = this.#ready ? undefined : this.#loading;
    if (this.#killed !== undefined) return { ...this.#killed, whileLoading };
    if (violation !== undefined) return { blame: 'self', reason: `it was ended: ${violation}`, whileLoading };
    if (this.#unfit !== undefined) {
      return { blame: 'self', reason: faultOf(this.#unfit).message, whileLoading, unfit: this.#unfit };
    }
    if (error !== undefined) return { blame: 'outside', reason: `it did not start: ${error.message}`, whileLoading };
    if (this.#lastWord !== undefined) {
      return { blame: 'self', reason: `an error was thrown outside of any run: ${this.#lastWord}`, whileLoading };
    }
    if (signal !== null) {
      const blame = foreignSignals.has(signal) ? 'outside' : 'self';
      const meaning = signal === 'SIGABRT' ? ', as it does when it runs out of memory' : '';
      return { blame, reason: `it ended by ${signal}${meaning}`, whileLoading };
    }
    return { blame: 'self', reason: `it ended with code ${code}`, whileLoading };
  }
}
