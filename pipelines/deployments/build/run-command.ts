/**
 * Runs a command of a build. Its code is not trusted.
 *
 * Invariant: when the returned promise settles, no process of the command is left.
 *
 *   1. The command runs in a process group of its own, with only the given environment. If there is an account, it runs
 *      under its user id, and enters its folder below the folder of the build with it.
 *   2. At the timeout or an abort, the whole group is killed. Processes that left the group are killed with the account;
 *      without an account, they are not found, which is why Runlake then trusts the source.
 *   3. If Runlake ends, also by SIGKILL, its processes end too: those of an account by the watchdog of the accounts.
 */
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { relative } from 'node:path';
import type { Readable } from 'node:stream';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { enterFolder, type ProcessAccount } from '../../../infra/isolation/process-accounts.ts';

export interface BuildCommand {
  readonly program: string;
  readonly args: readonly string[];
  /** Folder of the build. Processes of the build cannot replace it, and need not be able to enter its parents. */
  readonly root: string;
  /** The folder in which the command runs: `root`, or a folder in it. */
  readonly folder: string;
  readonly environment: Readonly<Record<string, string>>;
  readonly account: ProcessAccount | undefined;
}

export interface CommandOptions {
  /** Aborted at the timeout of the build, or when the revision ends. */
  readonly signal: AbortSignal;
  readonly onOutput: (text: string) => void;
}

/** A process that kills the group of the command when Runlake ends, which closes the pipe. */
const followHost = '( read -r _ <&3; kill -KILL 0 ) >/dev/null 2>&1 & exec 3<&-; ';
const maxOutputBytes = 4 * 1024 ** 2;
const maxEndCharacters = 16 * 1024;

/** Runs a command. @throws BUILD_FAILED if it fails; the reason of the signal. @returns its standard output, limited. */
export async function runCommand(command: BuildCommand, { signal, onOutput }: CommandOptions): Promise<string> {
  const { program, args, root, folder, environment, account } = command;
  signal.throwIfAborted();
  const inRoot = `./${relative(root, folder)}`;
  const child = spawn('/bin/sh', enterFolder(inRoot, program, args, account ? '' : followHost), {
    cwd: root,
    env: environment,
    ...(account && { uid: account.uid, gid: account.gid }),
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe', account ? 'ignore' : 'pipe'],
  }) as ChildProcessByStdio<null, Readable, Readable>;
  const kill = () => killGroup(child.pid);
  signal.addEventListener('abort', kill, { once: true });
  let output = '';
  let shownBytes = 0;
  /** The end of an output that is too long. It usually contains the reason of a failure. */
  let end = '';
  const show = (chunk: string) => {
    if (shownBytes > maxOutputBytes) {
      end = (end + chunk).slice(-maxEndCharacters);
      return;
    }
    shownBytes += Buffer.byteLength(chunk);
    onOutput(shownBytes > maxOutputBytes ? '(the output is too long; only its end is shown)' : chunk);
  };
  readText(child.stdout, (chunk) => {
    if (output.length < maxOutputBytes) output += chunk;
    show(chunk);
  });
  readText(child.stderr, show);
  try {
    const { code, killedBy } = await new Promise<{ code: number | null; killedBy: string | null }>(
      (resolve, reject) => {
        child.once('error', (cause) => reject(createStartError(program, cause)));
        // `exit` and not `close`: a background process may keep the pipes open.
        child.once('exit', (exitCode, exitSignal) => {
          kill();
          setImmediate(() => resolve({ code: exitCode, killedBy: exitSignal }));
        });
      },
    );
    signal.throwIfAborted();
    if (code !== 0) {
      const outcome = killedBy === null ? `ended with code ${code}` : `was killed by ${killedBy}`;
      throw runlakeError('BUILD_FAILED', { reason: `The command '${shorten(program, args)}' ${outcome}` });
    }
    return output;
  } finally {
    signal.removeEventListener('abort', kill);
    kill();
    for (const pipe of child.stdio) pipe?.destroy();
    // The first line may begin within a secret, which is then not found.
    const begin = end.indexOf('\n');
    if (begin !== -1) onOutput(end.slice(begin + 1));
  }
}

function createStartError(program: string, cause: Error): Error {
  return runlakeError('BUILD_FAILED', { reason: `${program} cannot be started` }, { cause });
}

function shorten(program: string, args: readonly string[]): string {
  const text = program === 'sh' ? (args.at(-1) ?? '') : [program, ...args].join(' ');
  return text.length > 200 ? `${text.slice(0, 200)}…` : text;
}

/** Passes whole lines. */
function readText(stream: Readable, onText: (text: string) => void): void {
  let open = '';
  stream.setEncoding('utf8');
  stream.on('data', (chunk: string) => {
    const text = open + chunk;
    const end = text.lastIndexOf('\n') + 1;
    open = text.slice(end);
    if (open.length > maxLineCharacters) {
      onText(`${open}\n`);
      open = '';
    }
    if (end > 0) onText(text.slice(0, end));
  });
  const flush = () => {
    if (open !== '') onText(open);
    open = '';
  };
  stream.once('end', flush);
  stream.once('close', flush);
  stream.on('error', () => undefined);
}

const maxLineCharacters = 16 * 1024;

function killGroup(pid: number | undefined): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // All processes of the group have exited.
  }
}
