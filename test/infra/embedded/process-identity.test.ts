import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { expect, it } from 'vitest';
import { isSameProcess, readProcessIdentity } from '../../../infra/embedded/process-identity.ts';

it('the identity of a process is constant while it runs', () => {
  const own = readProcessIdentity(process.pid);
  expect(own).toBeDefined();
  expect(readProcessIdentity(process.pid)).toBe(own);
  expect(isSameProcess(process.pid, own ?? '')).toBe(true);
});

it('a different start time means a different process', () => {
  expect(isSameProcess(process.pid, `${readProcessIdentity(process.pid)}1`)).toBe(false);
});

it.each([0, -1, 1.5, Number.NaN, 4_000_000])('returns undefined for process id %s', (pid) => {
  expect(readProcessIdentity(pid)).toBeUndefined();
});

it('a zombie process counts as dead', async () => {
  // The inner shell exits. Its parent becomes `sleep`, which never waits for its children.
  const shell = spawn('sh', ['-c', 'sh -c "exit 0" & echo $!; exec sleep 30'], { stdio: ['ignore', 'pipe', 'ignore'] });
  try {
    const [line] = await once(shell.stdout, 'data');
    await expect.poll(() => readProcessIdentity(Number(String(line)))).toBeUndefined();
  } finally {
    shell.kill('SIGKILL');
  }
});
