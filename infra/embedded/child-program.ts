/** Starts child processes that run a program of Runlake or of an engine, and handles their output. */
import { type ChildProcess, fork } from 'node:child_process';
import { appendFileSync, closeSync, fstatSync, openSync, readSync, renameSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Readable } from 'node:stream';
import { fileURLToPath, pathToFileURL } from 'node:url';

export interface ChildProgram {
  /** Path of the program relative to `base`, without a file extension, for example `./server-child`. */
  readonly program: string;
  /**
   * `import.meta.url` of the caller. The file extension determines whether TypeScript or built JavaScript is executed.
   */
  readonly base: string;
  readonly args: readonly string[];
  readonly cwd: string;
}

/**
 * Returns the path of a program of Runlake and the options with which Node executes it: the TypeScript source if the caller is
 * one.
 */
export function locateProgram(base: string, program: string): { readonly path: string; readonly execArgv: string[] } {
  const typescript = base.endsWith('.ts');
  return {
    path: fileURLToPath(new URL(`${program}.${typescript ? 'ts' : 'js'}`, base)),
    execArgv: typescript ? ['--import', pathToFileURL(createRequire(base).resolve('tsx')).href] : [],
  };
}

/**
 * Starts a Node program as a child process with an IPC channel. The stderr of the child is a pipe to the parent. The
 * child has its own process group, so that Ctrl+C in a terminal reaches only the parent, which drains first. The child
 * does not inherit the environment, because settings may be secrets.
 */
export function forkProgram({ program, base, args, cwd }: ChildProgram): ChildProcess {
  const { path, execArgv } = locateProgram(base, program);
  return fork(path, [...args], {
    cwd,
    execArgv,
    detached: true,
    env: { LC_ALL: 'C', TZ: 'UTC' },
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
  });
}

const maxLines = 20;
const maxLineLength = 500;

/** Keeps the last lines of a child's stderr, within limits. They explain why the child exited. */
export class LastLines {
  #lines: string[] = [];
  #open = '';

  /** @param maxCharacters longer lines are cut. */
  constructor(source: Readable | null, onLine: (line: string) => void = () => {}, maxCharacters = maxLineLength) {
    source?.setEncoding('utf8');
    source?.on('data', (chunk: string) => {
      const parts = (this.#open + chunk).split('\n');
      this.#open = (parts.pop() ?? '').slice(0, maxCharacters);
      for (const part of parts) {
        const line = part.trim().slice(0, maxCharacters);
        if (line === '') continue;
        this.#lines.push(line);
        if (this.#lines.length > maxLines) this.#lines.shift();
        onLine(line);
      }
    });
    // A broken pipe means that the child has exited, which is handled elsewhere.
    source?.on('error', () => {});
  }

  /** Returns the last line that matches the pattern. */
  last(matches: RegExp): string | undefined {
    const lines = this.#open.trim() === '' ? this.#lines : [...this.#lines, this.#open.trim()];
    return lines.findLast((line) => matches.test(line));
  }
}

/**
 * Appends lines to a private file (mode 0600). When the file reaches `limitBytes`, it is renamed to `<path>.1`, which
 * replaces any older file of that name.
 */
export class BoundedLog {
  readonly #path: string;
  readonly #limitBytes: number;
  #sizeBytes: number;

  constructor(path: string, limitBytes: number) {
    this.#path = path;
    this.#limitBytes = limitBytes;
    this.#sizeBytes = statSync(path, { throwIfNoEntry: false })?.size ?? 0;
  }

  /**
   * Appends a line. Never throws, because the engine must continue even if its log cannot be written, for example on a
   * full disk.
   */
  write(line: string): void {
    try {
      if (this.#sizeBytes >= this.#limitBytes) {
        renameSync(this.#path, `${this.#path}.1`);
        this.#sizeBytes = 0;
      }
      const text = `${line}\n`;
      appendFileSync(this.#path, text, { mode: 0o600 });
      this.#sizeBytes += Buffer.byteLength(text);
    } catch {
      // The engine continues without this line.
    }
  }
}

const maxTailBytes = 64 * 1024;

/** Returns the lines at the end of a log file that are not empty. Returns none if the file cannot be read. */
export function readLogTail(path: string): string[] {
  try {
    const file = openSync(path, 'r');
    try {
      const { size } = fstatSync(file);
      const tail = Buffer.alloc(Math.min(size, maxTailBytes));
      readSync(file, tail, 0, tail.length, size - tail.length);
      return tail
        .toString('utf8')
        .split('\n')
        .filter((line) => line.trim() !== '');
    } finally {
      closeSync(file);
    }
  } catch {
    // A missing log is not an error.
    return [];
  }
}
