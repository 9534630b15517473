/**
 * Runs the steps of a page as a reader does, in one terminal: in a folder with the content of a checkout, with the
 * command `runlake`, and with exported variables that remain set for later steps. A step of the kind `server` has its
 * own terminal. The session changes no text of the page; it sets the ports, the home and temporary folders, and the log
 * level through the environment.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import {
  chmodSync,
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { findFreePorts } from '../../infra/embedded/free-port.ts';
import { builtProgram } from '../built-program.ts';
import { until } from '../infra/until.ts';
import { testSettings } from '../test-settings.ts';
import { endOfBlock, type GuideStep, isOutput, programText } from './guide-page.ts';

const checkout = fileURLToPath(new URL('../../', import.meta.url));
const stepWithinMs = 180_000;
const stopWithinMs = 60_000;

export class GuideSession {
  readonly #folder: string;
  #environment: Record<string, string>;
  #workFolder: string;
  /** Process groups of all steps: background processes of a step belong to its group. */
  readonly #groups: number[] = [];
  /** The running step of the kind `server`. */
  #server: { readonly child: ChildProcess; readonly ended: Promise<unknown> } | undefined;

  private constructor(folder: string, environment: Record<string, string>) {
    this.#folder = folder;
    this.#environment = environment;
    this.#workFolder = join(folder, 'checkout');
  }

  static async open(): Promise<GuideSession> {
    const folder = mkdtempSync(join(tmpdir(), 'runlake-guide-'));
    // Processes of graph code run with separate user ids.
    chmodSync(folder, 0o755);
    for (const name of ['bin', 'checkout', 'home', 'tmp', 'steps']) mkdirSync(join(folder, name));
    for (const name of readdirSync(checkout).filter((entry) => !entry.startsWith('.')))
      symlinkSync(join(checkout, name), join(folder, 'checkout', name));
    const command = join(folder, 'bin', 'runlake');
    writeFileSync(command, `#!/bin/sh\nexec '${process.execPath}' '${builtProgram}' "$@"\n`, { mode: 0o755 });
    // `make` uses the build that the tests use, because another suite may be reading it.
    const make = execFileSync('sh', ['-c', 'command -v make'], { encoding: 'utf8' }).trim();
    const makeUpToDateOptions = '-o dist/.built -o node_modules/.package-lock.json';
    writeFileSync(join(folder, 'bin', 'make'), `#!/bin/sh\nexec '${make}' ${makeUpToDateOptions} "$@"\n`, {
      mode: 0o755,
    });
    const [port, agentsPort, toolsPort] = await findFreePorts(3);
    return new GuideSession(folder, {
      PATH: `${join(folder, 'bin')}:${process.env.PATH}`,
      HOME: join(folder, 'home'),
      TMPDIR: join(folder, 'tmp'),
      LANG: 'C.UTF-8',
      RUNLAKE_PORT: String(port),
      RUNLAKE_AGENTS_PORT: String(agentsPort),
      RUNLAKE_TOOLS_PORT: String(toolsPort),
      RUNLAKE_LOG_LEVEL: 'warn',
      ...testSettings({ agentsTypesSeconds: 0 }),
    });
  }

  /** Sets variables that the reader would set. */
  export(variables: Readonly<Record<string, string>>): void {
    Object.assign(this.#environment, variables);
  }

  /** Returns the value of a variable in the reader's terminal. */
  variable(name: string): string {
    return this.#environment[name] ?? '';
  }

  /**
   * Runs a step until its process ends; a server, until it accepts requests.
   *
   * @returns what it printed.
   * @throws an error with the full output if the step fails, or if a block prints something that differs from the page.
   */
  async run(page: string, step: GuideStep, python = 'python3'): Promise<string> {
    const [{ line }] = step.blocks as [GuideStep['blocks'][number]];
    const file = join(this.#folder, 'checkout', `${page}-${line}.${step.language === 'python' ? 'py' : step.language}`);
    writeFileSync(file, programText(step));
    const state = join(this.#folder, 'steps', 'environment');
    const keepState = 'source "$0"; env -0 > "$1"';
    const [program, ...words] = {
      sh: ['bash', '-euo', 'pipefail', '-c', keepState, file, state],
      ts: [process.execPath, '--import', 'tsx', file],
      python: [python, file],
    }[step.language] as [string, ...string[]];
    const written = join(this.#folder, 'steps', `${page}-${line}`);
    if (step.kind === 'server') return this.#startServer(program, words, written);
    const { code, output, errors } = await this.#run(program, words, written);
    const report = `${page}.md, line ${line}: exit code ${code}\n${output.replaceAll(endOfBlock, '')}${errors}`;
    if (code !== 0) throw new Error(`${report}${this.#logs()}`);
    const outputs = output.split(endOfBlock);
    for (const [index, block] of step.blocks.entries()) {
      if (block.output === undefined || isOutput(outputs[index] ?? '', block.output)) continue;
      throw new Error(
        `${page}.md, line ${block.line}, prints:\n${outputs[index]}${errors}\nThe page shows:\n${block.output}`,
      );
    }
    if (step.language === 'sh') this.#takeState(state);
    return outputs.join('');
  }

  /**
   * Presses Ctrl-C in the terminal of the server.
   *
   * @throws if the server does not end.
   */
  async stopServer(): Promise<void> {
    if (this.#server === undefined) return;
    const { child, ended } = this.#server;
    this.#server = undefined;
    if (child.pid !== undefined) signal(child.pid, 'SIGINT');
    const code = await ended;
    if (typeof code === 'string') throw new Error(`The server has not ended after Ctrl-C: ${code}`);
  }

  async #startServer(program: string, words: string[], written: string): Promise<string> {
    await this.stopServer();
    const child = this.#spawn(program, words, written);
    let isRunning = true;
    const ended = new Promise((resolve) => {
      child.once('exit', (code) => resolve(code));
      child.once('error', (error) => resolve(error));
    }).finally(() => {
      isRunning = false;
    });
    this.#server = {
      child,
      ended: Promise.race([ended, pause(stopWithinMs, 'still running', { ref: false })]),
    };
    const output = () => readFileSync(`${written}.out`, 'utf8');
    await until('the server to start', () => !isRunning || /^Runlake answers at .*\n/m.test(output()), stepWithinMs);
    if (!isRunning) throw new Error(`The server ended:\n${output()}${readFileSync(`${written}.err`, 'utf8')}`);
    return output();
  }

  /**
   * Waits until everything that the steps started has ended.
   *
   * @throws if a process is still running.
   */
  async ended(withinMs = stopWithinMs): Promise<void> {
    await until('the processes of the page to end', () => this.#processes() === '', withinMs).catch(() => {
      throw new Error(`The page leaves processes running: it must stop what it starts.\n${this.#processes()}`);
    });
  }

  async close(): Promise<void> {
    for (const group of this.#groups) signal(group, 'SIGTERM');
    await this.ended().catch(() => undefined);
    for (const group of this.#groups) signal(group, 'SIGKILL');
    rmSync(this.#folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  }

  async #run(program: string, words: string[], written: string) {
    const code = await exitCode(this.#spawn(program, words, written));
    return { code, output: readFileSync(`${written}.out`, 'utf8'), errors: readFileSync(`${written}.err`, 'utf8') };
  }

  #spawn(program: string, words: string[], written: string): ChildProcess {
    // Files, because a process in the background would keep pipes open.
    const files = [openSync(`${written}.out`, 'w'), openSync(`${written}.err`, 'w')] as const;
    const child = spawn(program, words, {
      cwd: this.#workFolder,
      env: this.#environment,
      stdio: ['ignore', ...files],
      detached: true,
    });
    for (const file of files) closeSync(file);
    if (child.pid !== undefined) this.#groups.push(child.pid);
    return child;
  }

  #takeState(file: string): void {
    const variables = readFileSync(file, 'utf8')
      .split('\0')
      .filter((entry) => entry !== '')
      .map((entry) => entry.split(/=(.*)/s, 2) as [string, string]);
    const { _: _last, SHLVL: _level, OLDPWD: _former, PWD: workFolder, ...environment } = Object.fromEntries(variables);
    this.#environment = environment;
    this.#workFolder = workFolder ?? this.#workFolder;
  }

  /**
   * Lists the processes of the page that have not exited: those in its process groups, and engines whose arguments
   * contain its folder.
   */
  #processes(): string {
    return execFileSync('ps', ['-eo', 'pgid=,stat=,args='], { encoding: 'utf8' })
      .split('\n')
      .filter((line) => {
        const [, group, state = ''] = /^\s*(\d+)\s+(\S+)/.exec(line) ?? [];
        return !state.startsWith('Z') && (this.#groups.includes(Number(group)) || line.includes(this.#folder));
      })
      .join('\n');
  }

  #logs(): string {
    const file = join(this.#folder, 'checkout', 'runlake.log');
    return existsSync(file) ? `\nrunlake.log:\n${readFileSync(file, 'utf8').slice(-4_000)}` : '';
  }
}

function exitCode(child: ChildProcess): Promise<number | null | string> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => {
      if (child.pid !== undefined) signal(child.pid, 'SIGKILL');
      resolve(`none within ${stepWithinMs / 1_000} s`);
    }, stepWithinMs);
    child.once('error', (error) => resolve(error.message));
    child.once('exit', (code, by) => {
      clearTimeout(timer);
      resolve(code ?? by);
    });
  });
}

function signal(group: number, name: NodeJS.Signals): void {
  try {
    process.kill(-group, name);
  } catch {
    // It has ended.
  }
}
