import { Socket } from 'node:net';
import { FrameReader, limitsOfFront, pipeDescriptor } from './frames.ts';

export interface ParentPipe {
  /** Writes the buffers. `sent` is called when the operating system has accepted all bytes. */
  write(buffers: readonly Uint8Array[], sent?: () => void): void;
}

/**
 * Opens the worker's end of the pipe to the front, which spawned this process as a `WorkerChild`. The process exits
 * when the pipe closes, at the latest when the front ends.
 */
export function openParentPipe(onMessage: (message: unknown) => void): ParentPipe {
  // Bind `process.exit` now, because project code may replace it later.
  const exit = process.exit.bind(process);
  const pipe = new Socket({ fd: pipeDescriptor, readable: true, writable: true });
  const reader = new FrameReader(limitsOfFront, ({ head }) => onMessage(JSON.parse(head.toString('utf8'))));
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
