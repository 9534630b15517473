import { setImmediate as nextTurn } from 'node:timers/promises';

/**
 * Waits for work of this process, and returns the share of its processor time that the longest turn of the event loop
 * took. Processor time does not depend on other processes.
 */
export async function measureLongestTurn(work: Promise<unknown>): Promise<number> {
  let isDone = false;
  const done = work.finally(() => {
    isDone = true;
  });
  const readMicros = () => {
    const { user, system } = process.cpuUsage();
    return user + system;
  };
  const start = readMicros();
  let longest = 0;
  for (let before = start; !isDone; ) {
    await nextTurn();
    const now = readMicros();
    longest = Math.max(longest, now - before);
    before = now;
  }
  await done;
  return longest / (readMicros() - start);
}
