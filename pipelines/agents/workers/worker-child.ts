/**
 * A child process that runs code of a project, and the front's end of the pipe to it.
 *
 * Trust boundary: the child has no IPC channel of Node, whose messages the parent would parse outside of any `try`. It has a pipe of its
 * own (`frames.ts`). Whatever it writes there, the front goes on: what it cannot take is a violation, which ends this child alone.
 *
 *   1. The child is spawned as the leader of its own process group, with the pipe as file descriptor 3. If there are accounts for such
 *      processes, it gets one of its own, whose folder is its HOME and TMPDIR.
 *   2. Each frame goes to `onFrame`. What that throws, and frames that are none, end the child; nothing of it is heard afterwards.
 *   3. A child that closes the pipe and goes on is ended.
 *   4. `onGone` is called once: after the child has exited and what it had sent was read. A process of its own that holds the pipe open
 *      delays that by a second at most; what runs under an account of its own is killed then.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import type { Socket } from 'node:net';
import type { AccountSource, ProcessAccount } from '../../../infra/isolation/process-accounts.ts';
import { encodeFrame, type Frame, type FrameLimits, FrameReader, pipeDescriptor } from './frames.ts';

export interface WorkerChildOptions {
  /** Path of the program. */
  readonly program: string;
  /** Arguments of Node. */
  readonly execArgv: readonly string[];
  readonly folder?: string;
  /** All that the child sees. */
  readonly environment: Readonly<Record<string, string>>;
  /** Absent: it runs under the account of this process. */
  readonly accounts?: AccountSource | undefined;
  readonly limits: FrameLimits;
  readonly onFrame: (frame: Frame) => void;
  readonly onGone: (end: ChildEnd) => void;
  /** What it writes to its standard output and error, line by line, at most 1,000 a second. Absent: that goes nowhere. */
  readonly onLine?: (line: string) => void;
}

export interface ChildEnd {
  readonly code: number | null;
  readonly signal: string | null;
  /** It did not start. */
  readonly error?: Error;
  /** What it sent, or did to its pipe, that no worker does. */
  readonly violation?: string;
}

const lingerMs = 1_000;
const maxLineCharacters = 4_000;
const maxLinesPerSecond = 1_000;

export class WorkerChild {
  readonly #child: ChildProcess | undefined;
  readonly #pipe: Socket | undefined;
  #corked = false;
  #violation: string | undefined;
  #gone = false;

  constructor(options: WorkerChildOptions) {
    const { program, execArgv, folder, environment, accounts, limits, onFrame, onGone, onLine } = options;
    const output = onLine === undefined ? 'ignore' : 'pipe';
    let account: ProcessAccount | undefined;
    try {
      account = accounts?.take();
      this.#child = spawn(process.execPath, [...execArgv, program], {
        cwd: folder,
        env: { ...environment, ...(account && { HOME: account.home, TMPDIR: account.home }) },
        ...(account && { uid: account.uid, gid: account.gid }),
        // A signal to the group of the front, as Ctrl+C in a terminal, is the front's to act on.
        detached: true,
        stdio: ['ignore', output, output, 'pipe'],
      });
    } catch (error) {
      // What the operating system refuses is thrown here or emitted below, depending on its code.
      this.#gone = true;
      account?.release();
      setImmediate(() => onGone({ code: null, signal: null, error: error as Error }));
      return;
    }
    const child = this.#child;
    if (onLine !== undefined) readLines([child.stdout, child.stderr], onLine);

    let lingering: NodeJS.Timeout | undefined;
    const gone = (code: number | null, signal: string | null, error?: Error) => {
      if (this.#gone) return;
      this.#gone = true;
      clearTimeout(lingering);
      this.#pipe?.destroy();
      account?.release();
      const violation = this.#violation;
      onGone({ code, signal, ...(error && { error }), ...(violation !== undefined && { violation }) });
    };
    child.once('error', (error) => {
      if (child.pid === undefined) gone(null, null, error);
    });
    this.#pipe = child.stdio[pipeDescriptor] as Socket | undefined;
    if (!this.#pipe) return;
    const reader = new FrameReader(limits, (frame) => {
      if (this.#violation === undefined) onFrame(frame);
    });
    this.#pipe.on('data', (bytes: Buffer) => {
      if (this.#violation !== undefined || this.#gone) return;
      try {
        reader.push(bytes);
      } catch (error) {
        this.#violate(error instanceof Error ? error.message : String(error));
      }
    });
    // A pipe whose child has gone: its end is on its way.
    this.#pipe.on('error', () => undefined);
    this.#pipe.once('close', () => {
      setTimeout(() => {
        if (!this.#gone && child.exitCode === null && child.signalCode === null) {
          this.#violate('it closed its pipe');
        }
      }, lingerMs).unref();
    });
    child.once('exit', (code, signal) => {
      if (this.#pipe?.closed) return gone(code, signal);
      this.#pipe?.once('close', () => gone(code, signal));
      // What was sent is read once more after the timer.
      lingering = setTimeout(() => setImmediate(() => gone(code, signal)), lingerMs);
    });
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  /** Sent together with what else is sent in this turn of the event loop. */
  send(message: object): void {
    const pipe = this.#pipe;
    if (pipe === undefined || !pipe.writable) return;
    if (!this.#corked) {
      this.#corked = true;
      pipe.cork();
      setImmediate(() => {
        this.#corked = false;
        pipe.uncork();
      });
    }
    for (const part of encodeFrame(message)) pipe.write(part);
  }

  kill(): void {
    if (!this.#gone) this.#child?.kill('SIGKILL');
  }

  #violate(reason: string): void {
    this.#violation ??= reason;
    this.kill();
  }
}

/** Code that prints in a loop must not fill the log: what it prints beyond the limit of a second is dropped. */
function readLines(streams: readonly (NodeJS.ReadableStream | null)[], onLine: (line: string) => void): void {
  let second = 0;
  let lines = 0;
  const take = (line: string) => {
    const now = Math.floor(performance.now() / 1_000);
    if (now !== second) [second, lines] = [now, 0];
    lines += 1;
    if (lines <= maxLinesPerSecond) onLine(line);
    else if (lines === maxLinesPerSecond + 1)
      onLine(`lines after the first ${maxLinesPerSecond} of this second are dropped`);
  };
  for (const stream of streams) {
    let rest = '';
    stream?.setEncoding('utf8').on('data', (text: string) => {
      const parts = (rest + text).split('\n');
      rest = (parts.pop() ?? '').slice(0, maxLineCharacters);
      for (const line of parts) if (line.trim() !== '') take(line.slice(0, maxLineCharacters));
    });
  }
}
