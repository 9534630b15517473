import { Worker } from 'node:worker_threads';

/**
 * Ends this process soon after its parent has gone, also while graph code holds the event loop: a thread of its own looks, each second,
 * whose child this is.
 */
export function watchParent(): void {
  const watch = new Worker(
    `const { workerData } = require('node:worker_threads');
     setInterval(() => process.ppid !== workerData && process.kill(process.pid, 'SIGKILL'), 1_000);`,
    { eval: true, workerData: process.ppid, stdout: false, execArgv: [], env: {} },
  );
  watch.unref();
  watch.on('error', () => undefined);
}
