import { Socket } from 'node:net';
import { Worker } from 'node:worker_threads';
import { FrameReader, parentFrameLimits, pipeDescriptor } from './frames.ts';

export interface ParentPipe {
  /** Writes the buffers. `sent` is called when the operating system has accepted all bytes. */
  write(buffers: readonly Uint8Array[], sent?: () => void): void;
}

/**
 * Opens the worker's end of the pipe to the parent process, which spawned this process as a `WorkerChild`. The process
 * exits when the pipe closes, at the latest when the parent process ends.
 */
export function openParentPipe(onMessage: (message: unknown) => void): ParentPipe {
  // Bind `process.exit` now, because project code may replace it later.
  const exit = process.exit.bind(process);
  const pipe = new Socket({ fd: pipeDescriptor, readable: true, writable: true });
  const reader = new FrameReader(parentFrameLimits, ({ head }) => onMessage(JSON.parse(head.toString('utf8'))));
  pipe.on('data', (bytes: Buffer) => reader.push(bytes));
  pipe.on('error', () => exit(0));
  pipe.on('close', () => exit(0));
  return {
    write(buffers, sent) {
      pipe.cork();
      for (const buffer of buffers) pipe.write(buffer);
      if (sent !== undefined) pipe.write('', sent);
      pipe.uncork();
    },
  };
}

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
