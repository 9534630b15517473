import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { expect, it } from 'vitest';
import { type EngineProcess, superviseEngine } from '../../../infra/embedded/supervise-engine.ts';

/** Starts real processes that sleep for a minute. */
function sleepers() {
  const started: ChildProcess[] = [];
  const launch = async (): Promise<EngineProcess> => {
    const child = spawn('sleep', ['60'], { stdio: 'ignore' });
    started.push(child);
    const exited = once(child, 'exit').then(([, signal]) => `ended with ${signal}`);
    return {
      exited,
      stop: async () => {
        child.kill('SIGKILL');
        await exited;
      },
    };
  };
  return { started, launch };
}

it('restarts the engine each time it exits, until it is stopped', async () => {
  const { started, launch } = sleepers();
  const engine = await superviseEngine('Sleep', launch);
  for (let crash = 1; crash <= 2; crash += 1) {
    started.at(-1)?.kill('SIGKILL');
    await expect.poll(() => started.length, { timeout: 20_000 }).toBe(crash + 1);
  }
  await engine.stop();
  await engine.stop();
  expect(await engine.exited).toEqual({ expected: true, reason: 'stopped' });
  expect(started.filter((child) => child.signalCode === null)).toEqual([]);
});

it('restarts an engine that fails three probes in a row', async () => {
  const { started, launch } = sleepers();
  const answers = [false, true, false, false, true, false, false, false];
  const probed: number[] = [];
  const engine = await superviseEngine(
    'Sleep',
    async () => ({
      ...(await launch()),
      isAlive: async () => {
        probed.push(started.length);
        return answers.shift() ?? true;
      },
    }),
    undefined,
    { probeIntervalMs: 1 },
  );
  await expect.poll(() => started.length, { timeout: 20_000 }).toBe(2);
  expect(probed.filter((incarnation) => incarnation === 1)).toHaveLength(8);
  expect(started[0]?.signalCode).toBe('SIGKILL');
  await expect.poll(() => probed.length, { timeout: 20_000 }).toBeGreaterThan(12);
  expect(started).toHaveLength(2);
  await engine.stop();
  expect(started[1]?.signalCode).toBe('SIGKILL');
});

it('rejects if the first start fails', async () => {
  await expect(superviseEngine('Sleep', () => Promise.reject(new Error('no')))).rejects.toThrow('no');
});

it('retries after a failed restart', async () => {
  const { started, launch } = sleepers();
  let refused = 0;
  const engine = await superviseEngine('Sleep', async () => {
    if (started.length > 0 && refused < 2) {
      refused += 1;
      throw new Error('not now');
    }
    return launch();
  });
  started[0]?.kill('SIGKILL');
  await expect.poll(() => started.length, { timeout: 20_000 }).toBe(2);
  expect(refused).toBe(2);
  await engine.stop();
  expect(await engine.exited).toMatchObject({ expected: true });
});

it('gives up after thirty failed restarts', async () => {
  const { started, launch } = sleepers();
  let attempts = 0;
  const relaunch = async () => {
    attempts += 1;
    if (started.length > 0) throw new Error('damaged');
    return launch();
  };
  const engine = await superviseEngine('Sleep', relaunch, undefined, { maxRestartDelayMs: 1 });
  started[0]?.kill('SIGKILL');
  expect(await engine.exited).toEqual({ expected: false, reason: 'damaged' });
  expect(attempts).toBe(31);
});

it.each([
  'ENOSPC: no space left on device, write',
  'FATAL:  could not write to file "pg_wal/xlogtemp.1": No space left on device',
])('does not give up while the disk is full: %s', async (reason) => {
  const { started, launch } = sleepers();
  let refusedCount = 0;
  let isFull = true;
  const relaunch = async () => {
    if (started.length > 0 && isFull) {
      refusedCount += 1;
      throw new Error(reason);
    }
    return launch();
  };
  const engine = await superviseEngine('Sleep', relaunch, undefined, { maxRestartDelayMs: 1 });
  started[0]?.kill('SIGKILL');
  await expect.poll(() => refusedCount, { timeout: 20_000 }).toBeGreaterThan(60);
  isFull = false;
  await expect.poll(() => started.length, { timeout: 20_000 }).toBe(2);
  await engine.stop();
});

it('stop during a restart also ends the new process', async () => {
  const { started, launch } = sleepers();
  let waiting = false;
  let release = () => {};
  const engine = await superviseEngine('Sleep', async () => {
    if (started.length > 0)
      await new Promise<void>((resolve) => {
        release = resolve;
        waiting = true;
      });
    return launch();
  });
  started[0]?.kill('SIGKILL');
  await expect.poll(() => waiting).toBe(true);
  const stopping = engine.stop();
  release();
  await stopping;
  expect(started).toHaveLength(2);
  expect(started[1]?.signalCode).toBe('SIGKILL');
});
