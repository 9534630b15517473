import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { until } from '../infra/until.ts';

const bench = fileURLToPath(new URL('bench-under-test.ts', import.meta.url));

const endings: readonly [work: string, signal: NodeJS.Signals | undefined, code: number, error?: string][] = [
  ['returns', undefined, 0],
  ['throws', undefined, 1, 'failed'],
  ['throws in the background', undefined, 1, 'failed'],
  ['does not start', undefined, 1, 'does not start'],
  ['starts', 'SIGTERM', 143],
  ['works', 'SIGINT', 130],
  ['works', 'SIGTERM', 143],
];

test.concurrent.each(endings)(
  'a bench that %s, signal %s, ends what it has started, the last first',
  async (work, signal, code, error) => {
    const child = spawn(process.execPath, ['--import', 'tsx', bench, work], { stdio: 'pipe' });
    const exited = once(child, 'exit');
    const output = { out: '', errors: '' };
    child.stdout.on('data', (chunk) => {
      output.out += chunk;
    });
    child.stderr.on('data', (chunk) => {
      output.errors += chunk;
    });
    const readPid = () => /pid (\d+)/.exec(output.out)?.[1];
    await until('the bench to start its process', () => readPid() !== undefined, 30_000);
    if (signal) child.kill(signal);
    await until('the bench to end', () => output.out.includes('ending'), 30_000);
    // A terminal, npm and tsx may each send it.
    if (signal) child.kill(signal);
    child.stdin.end();
    expect((await exited)[0], output.errors).toBe(code);
    expect(output.out.split('\n').slice(1)).toEqual(['ending', 'process ended', 'folder removed', '']);
    if (error) expect(output.errors).toContain(error);
    else expect(output.errors).toBe('');
    await until('its process to end', () => !isRunning(Number(readPid())), 10_000);
  },
);

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}
