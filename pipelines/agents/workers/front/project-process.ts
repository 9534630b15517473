/**
 * A child process that runs project code, and the parent's end of the pipe to it.
 *
 * Trust boundary: the child has no Node IPC channel, because the parent process would parse the messages of this
 * channel outside of any `try`. Instead it has a separate pipe (`frames.ts`). No bytes on this pipe can make the parent
 * process throw. Invalid bytes are a protocol violation, which ends only this child.
 *
 *   1. The parent process spawns the child as the leader of its own process group, with the pipe as file descriptor 3.
 *      If `accounts` is set, the child gets its own operating-system account, whose folder is HOME and TMPDIR.
 *   2. Each frame is passed to `onFrame`. An invalid frame or an error of `onFrame` ends the child; no frame is
 *      delivered afterwards.
 *   3. If the child closes the pipe without exiting, the parent process kills it.
 *   4. `onExit` is called once, after the child has exited and the parent process has read its frames. A grandchild
 *      that keeps the pipe open delays this call by at most one second. When the parent process releases the account
 *      of the child, all processes that still run under this account are killed.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import type { Socket } from 'node:net';
import { type AccountSource, enterFolder, type ProcessAccount } from '../../../../infra/isolation/process-accounts.ts';
import { readLines } from '../../../../infra/isolation/read-lines.ts';
import { encodeFrame, type Frame, type FrameLimits, FrameReader, pipeDescriptor } from '../frames.ts';

export interface ProjectProcessOptions {
  /** Path of the program. */
  readonly program: string;
  /** Command-line options of Node. */
  readonly execArgv: readonly string[];
  readonly folder?: string;
  /** All environment variables that the child receives. */
  readonly environment: Readonly<Record<string, string>>;
  /** Provider of operating-system accounts. If absent, the child runs under the account of this process. */
  readonly accounts?: AccountSource | undefined;
  readonly limits: FrameLimits;
  readonly onFrame: (frame: Frame) => void;
  readonly onExit: (end: ProcessEnd) => void;
  /**
   * Receives each line of standard output and standard error, up to 1,000 lines per second. If absent, the output is
   * discarded.
   */
  readonly onLine?: (line: string) => void;
}

export interface ProcessEnd {
  readonly code: number | null;
  readonly signal: string | null;
  /** The error that prevented the child from starting. */
  readonly error?: Error;
  /** Description of the protocol violation. */
  readonly violation?: string;
}

const pipeDrainTimeoutMs = 1_000;

export class ProjectProcess {
  readonly #child: ChildProcess | undefined;
  readonly #pipe: Socket | undefined;
  #isCorked = false;
  #violation: string | undefined;
  #hasExited = false;

  constructor(options: ProjectProcessOptions) {
    const { program, execArgv, folder, environment, accounts, limits, onFrame, onExit, onLine } = options;
    const output = onLine === undefined ? 'ignore' : 'pipe';
    let account: ProcessAccount | undefined;
    try {
      account = accounts?.take();
      const args = [...execArgv, program];
      const isEntered = account !== undefined && folder !== undefined;
      this.#child = spawn(
        isEntered ? '/bin/sh' : process.execPath,
        isEntered ? enterFolder(folder, process.execPath, args) : args,
        {
          cwd: isEntered ? '/' : folder,
          env: { ...environment, ...(account && { HOME: account.home, TMPDIR: account.home }) },
          ...(account && { uid: account.uid, gid: account.gid }),
          // A signal to the parent's process group, such as Ctrl+C, must not reach the child; the parent process decides
          // when the child ends.
          detached: true,
          stdio: ['ignore', output, output, 'pipe'],
        },
      );
    } catch (error) {
      // For a failed spawn, Node either throws the error here or emits it as 'error' below, depending on the error
      // code.
      this.#hasExited = true;
      void account?.release();
      setImmediate(() => onExit({ code: null, signal: null, error: error as Error }));
      return;
    }
    const child = this.#child;
    if (onLine !== undefined) readLines([child.stdout, child.stderr], onLine);

    let drainTimer: NodeJS.Timeout | undefined;
    const gone = (code: number | null, signal: string | null, error?: Error) => {
      if (this.#hasExited) return;
      this.#hasExited = true;
      clearTimeout(drainTimer);
      this.#pipe?.destroy();
      void account?.release();
      const violation = this.#violation;
      onExit({ code, signal, ...(error && { error }), ...(violation !== undefined && { violation }) });
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
      if (this.#violation !== undefined || this.#hasExited) return;
      try {
        reader.push(bytes);
      } catch (error) {
        this.#violate(error instanceof Error ? error.message : String(error));
      }
    });
    // Ignore the error: the child has exited, and 'exit' and 'close' follow.
    this.#pipe.on('error', () => undefined);
    this.#pipe.once('close', () => {
      setTimeout(() => {
        if (!this.#hasExited && child.exitCode === null && child.signalCode === null) {
          this.#violate('it closed its pipe');
        }
      }, pipeDrainTimeoutMs).unref();
    });
    child.once('exit', (code, signal) => {
      if (this.#pipe?.closed) return gone(code, signal);
      this.#pipe?.once('close', () => gone(code, signal));
      // Read the buffered frames once more after the timer has fired.
      drainTimer = setTimeout(() => setImmediate(() => gone(code, signal)), pipeDrainTimeoutMs);
    });
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  /** Sends a message. All messages of one turn of the event loop are written together. */
  send(message: object): void {
    const pipe = this.#pipe;
    if (pipe === undefined || !pipe.writable) return;
    if (!this.#isCorked) {
      this.#isCorked = true;
      pipe.cork();
      setImmediate(() => {
        this.#isCorked = false;
        pipe.uncork();
      });
    }
    for (const part of encodeFrame(message)) pipe.write(part);
  }

  kill(): void {
    if (!this.#hasExited) this.#child?.kill('SIGKILL');
  }

  #violate(reason: string): void {
    this.#violation ??= reason;
    this.kill();
  }
}
