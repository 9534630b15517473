/**
 * A bench that starts a process and a folder, prints the id of that process, and then works as its argument says. What it
 * has started ends when its standard input has ended.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import { atEnd, runBench, started } from '../../bench/started.ts';

const [work] = process.argv.slice(2);

await runBench(async () => {
  atEnd(() => console.log('folder removed'));
  const starting = Promise.resolve(spawn('sleep', ['600'])).then(async (child) => {
    console.log(`pid ${child.pid}`);
    // Longer than the test waits for the process id.
    if (work === 'starts') await pause(1_000);
    return child;
  });
  await started(starting, async (child) => {
    console.log('ending');
    process.stdin.resume();
    await once(process.stdin, 'end');
    child.kill();
    await once(child, 'exit');
    console.log('process ended');
  });
  await started(Promise.reject(new Error('does not start')), () => console.log('ended without a start')).catch(
    (error: unknown) => {
      if (work === 'does not start') throw error;
    },
  );
  if (work === 'throws') throw new Error('failed');
  if (work === 'throws in the background') void Promise.reject(new Error('failed'));
  if (work !== 'returns') await pause(600_000, undefined, { ref: true });
});
