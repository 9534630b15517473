// Runs a program whose temporary files, and the data of the stack that it brings up, lie in memory, where a machine has
// enough of it: suites make and remove the files of many servers, and wait for a disk at each commit. No suite cuts the
// power, and what a process that is killed has written is there afterwards, in memory as on a disk.
import { spawn } from 'node:child_process';
import { chmodSync, existsSync, mkdtempSync, rmSync, statfsSync } from 'node:fs';
import { constants, freemem } from 'node:os';
import { join } from 'node:path';

const memory = '/dev/shm';
/** Beside what a whole run writes its processes need memory, too. */
const enoughBytes = 12 * 1024 ** 3;

const [program, ...args] = process.argv.slice(2);
const folder = isEnough() ? mkdtempSync(join(memory, 'runlake-tests-')) : undefined;
// Servers may run as another user, as in every folder for temporary files.
if (folder !== undefined) chmodSync(folder, 0o1777);
const isStackElsewhere =
  process.env.RUNLAKE_STACK_DIR !== undefined || existsSync(join('.runlake-stack', 'state.json'));
const child = spawn(program, args, {
  stdio: 'inherit',
  env: {
    ...process.env,
    ...(folder !== undefined && { TMPDIR: folder }),
    ...(folder !== undefined && !isStackElsewhere && { RUNLAKE_STACK_DIR: join(folder, 'stack') }),
  },
});
// Ctrl-C in a terminal reaches the program by itself.
process.on('SIGINT', () => {});
for (const signal of ['SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal));
child.on('exit', (code, signal) => {
  if (folder !== undefined) rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  process.exit(code ?? 128 + (constants.signals[signal] ?? 0));
});

function isEnough() {
  if (process.env.TMPDIR !== undefined || !existsSync(memory)) return false;
  const { bavail, bsize } = statfsSync(memory);
  const limit = process.constrainedMemory() || Number.POSITIVE_INFINITY;
  return Math.min(bavail * bsize, freemem(), limit) >= enoughBytes;
}
