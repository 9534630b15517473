// Runs a program with its temporary files, and the data of the stack that it starts, in memory if the machine has
// enough of it: suites create and remove the files of many servers, and wait for a disk sync at each commit. No suite
// simulates a power failure, and the files of a killed process survive in memory as they do on a disk.
import { spawn } from 'node:child_process';
import { chmodSync, existsSync, mkdtempSync, rmSync, statfsSync } from 'node:fs';
import { constants, freemem } from 'node:os';
import { join } from 'node:path';

const memory = '/dev/shm';
/** Covers the files of a whole run and the memory of its processes. */
const minBytes = 12 * 1024 ** 3;

const [program, ...args] = process.argv.slice(2);
const folder = hasEnoughMemory() ? mkdtempSync(join(memory, 'runlake-tests-')) : undefined;
// Servers may run as another user, so the mode is that of /tmp.
if (folder !== undefined) chmodSync(folder, 0o1777);
const hasOtherStack = process.env.RUNLAKE_STACK_DIR !== undefined || existsSync(join('.runlake-stack', 'state.json'));
const child = spawn(program, args, {
  stdio: 'inherit',
  env: {
    ...process.env,
    ...(folder !== undefined && { TMPDIR: folder }),
    ...(folder !== undefined && !hasOtherStack && { RUNLAKE_STACK_DIR: join(folder, 'stack') }),
  },
});
// The terminal sends Ctrl-C to the program directly.
process.on('SIGINT', () => {});
for (const signal of ['SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal));
child.on('exit', (code, signal) => {
  if (folder !== undefined) rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  process.exit(code ?? 128 + (constants.signals[signal] ?? 0));
});

function hasEnoughMemory() {
  if (process.env.TMPDIR !== undefined || !existsSync(memory)) return false;
  const { bavail, bsize } = statfsSync(memory);
  const limit = process.constrainedMemory() || Number.POSITIVE_INFINITY;
  return Math.min(bavail * bsize, freemem(), limit) >= minBytes;
}
