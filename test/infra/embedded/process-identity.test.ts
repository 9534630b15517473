import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { expect, it } from 'vitest';
import { isSameProcess, processIdentity } from '../../../infra/embedded/process-identity.ts';

it('a process keeps its identity while it lives', () => {
  const own = processIdentity(process.pid);
  expect(own).toBeDefined();
  expect(processIdentity(process.pid)).toBe(own);
  expect(isSameProcess(process.pid, own ?? '')).toBe(true);
});

it('another start time is another process', () => {
  expect(isSameProcess(process.pid, `${processIdentity(process.pid)}1`)).toBe(false);
});

it.each([0, -1, 1.5, Number.NaN, 4_000_000])('there is no process %s', (pid) => {
  expect(processIdentity(pid)).toBeUndefined();
});

it('a dead process that nobody has buried yet is dead', async () => {
  // The shell ends first; its parent, which never waits, is `sleep` in its place.
  const shell = spawn('sh', ['-c', 'sh -c "exit 0" & echo $!; exec sleep 30'], { stdio: ['ignore', 'pipe', 'ignore'] });
  try {
    const [line] = await once(shell.stdout, 'data');
    await expect.poll(() => processIdentity(Number(String(line)))).toBeUndefined();
  } finally {
    shell.kill('SIGKILL');
  }
});
