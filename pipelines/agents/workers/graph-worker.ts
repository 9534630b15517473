/**
 * One worker process, seen from the front.
 *
 * Invariant: each process is judged once, when it has gone, and only by what is known here: its last word, its code or signal, and
 * whether this process killed it.
 *
 *   1. It is forked and set up. It has `loadWithinMs` to import all graphs.
 *   2. Every message, and the beat each second, says that its event loop turns. After `silentMs` without any it is killed.
 *   3. When it has gone, `onGone` gets the verdict. Nothing of it is heard afterwards.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { needsTypescript, typescriptLoader } from './read-typescript.ts';
import { faultOf } from './refusal.ts';
import type { FromWorker, Refusal, ToWorker, WorkerSetup } from './worker-messages.ts';

export interface GraphWorkerOptions {
  readonly setup: WorkerSetup;
  /** Of the langgraph.json, in which graph code runs. */
  readonly folder: string;
  /** All that graph code sees. */
  readonly environment: Readonly<Record<string, string>>;
  readonly heapMegabytes: number | undefined;
  readonly silentMs: number;
  readonly loadWithinMs: number;
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
const longestLine = 4_000;

export class GraphWorker {
  readonly #options: GraphWorkerOptions;
  readonly #child: ChildProcess;
  readonly #startedAtMs = performance.now();
  #heardAtMs = performance.now();
  #lookedAtMs = performance.now();
  #ready = false;
  #loading: string | undefined;
  #lastWord: string | undefined;
  #unfit: Refusal | undefined;
  #killed: Pick<Verdict, 'blame' | 'reason'> | undefined;
  #gone = false;
  #waiting: ToWorker[] = [];

  constructor(options: GraphWorkerOptions) {
    this.#options = options;
    this.#child = this.#fork();
    this.tell({ kind: 'setup', setup: options.setup });
    const looking = setInterval(() => this.#look(), Math.min(1_000, options.silentMs / 4));
    this.#child.on('message', (messages) => {
      for (const message of messages as readonly FromWorker[]) this.#hear(message);
    });
    const gone = (code: number | null, signal: string | null, error?: Error) => {
      if (this.#gone) return;
      this.#gone = true;
      clearInterval(looking);
      options.onGone(this.#judge(code, signal, error));
    };
    // The channel may hold messages when the process has gone already: `disconnect` comes after the last of them.
    this.#child.once('exit', (code, signal) => {
      if (!this.#child.connected) gone(code, signal);
      else this.#child.once('disconnect', () => gone(code, signal));
    });
    this.#child.once('error', (error) => {
      if (this.#child.pid === undefined) gone(null, null, error);
    });
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  /** Sent with what else is said in this turn of the event loop. */
  tell(message: ToWorker): void {
    if (this.#waiting.length === 0) {
      setImmediate(() => {
        const messages = this.#waiting;
        this.#waiting = [];
        // A channel that is closed: the end of the process is on its way.
        if (this.#child.connected) this.#child.send(messages, () => undefined);
      });
    }
    this.#waiting.push(message);
  }

  kill(blame: Verdict['blame'], reason: string): void {
    if (this.#gone) return;
    this.#killed ??= { blame, reason };
    this.#child.kill('SIGKILL');
  }

  #fork(): ChildProcess {
    const { setup, folder, environment, heapMegabytes } = this.#options;
    const fromSource = import.meta.url.endsWith('.ts');
    const program = fileURLToPath(new URL(`./worker-process.${fromSource ? 'ts' : 'js'}`, import.meta.url));
    const elsewhere = () => new URL('./typescript-elsewhere.js', import.meta.url).href;
    const first = fromSource ? typescriptLoader() : needsTypescript(setup) ? elsewhere() : undefined;
    const child = fork(program, [], {
      cwd: folder,
      env: { ...environment },
      execArgv: [
        ...(heapMegabytes === undefined ? [] : [`--max-old-space-size=${heapMegabytes}`]),
        ...(first === undefined ? [] : ['--import', first]),
      ],
      serialization: 'advanced',
      // A signal to the group of the front, as Ctrl+C in a terminal, is the front's to act on.
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    });
    for (const stream of [child.stdout, child.stderr]) {
      let rest = '';
      stream?.setEncoding('utf8').on('data', (text: string) => {
        const lines = (rest + text).split('\n');
        rest = (lines.pop() ?? '').slice(0, longestLine);
        for (const line of lines) if (line.trim() !== '') this.#options.onLine(line.slice(0, longestLine));
      });
    }
    return child;
  }

  #hear(message: FromWorker): void {
    this.#heardAtMs = performance.now();
    if (message.kind === 'loading') this.#loading = message.graphId;
    else if (message.kind === 'dying') this.#lastWord = message.reason;
    else if (message.kind === 'unfit') this.#unfit = message.refusal;
    else if (message.kind === 'ready') {
      this.#ready = true;
      this.#loading = undefined;
    }
    if (!this.#gone) this.#options.onMessage(message);
  }

  #look(): void {
    const now = performance.now();
    const { silentMs, loadWithinMs } = this.#options;
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

  #judge(code: number | null, signal: string | null, error: Error | undefined): Verdict {
    const whileLoading = this.#ready ? undefined : this.#loading;
    if (this.#killed !== undefined) return { ...this.#killed, whileLoading };
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
