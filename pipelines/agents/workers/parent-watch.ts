import { Worker } from 'node:worker_threads';

/**
 * Kills this process soon after its parent has ended, even if graph code blocks the event loop: a separate thread
 * checks the parent process id every second.
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
