import { Socket } from 'node:net';
import { FrameReader, limitsOfFront, pipeDescriptor } from './frames.ts';

export interface ParentPipe {
  /** `sent` is called when the operating system has all of it. */
  write(buffers: readonly Uint8Array[], sent?: () => void): void;
}

/**
 * This process's end of the pipe to the front, which has spawned it as a `WorkerChild`. When the front closes it, or is gone, this process
 * ends.
 */
export function openParentPipe(onMessage: (message: unknown) => void): ParentPipe {
  // Kept from code of the project, which may put its own in their place.
  const end = process.exit.bind(process);
  const pipe = new Socket({ fd: pipeDescriptor, readable: true, writable: true });
  const reader = new FrameReader(limitsOfFront, ({ head }) => onMessage(JSON.parse(head.toString('utf8'))));
  pipe.on('data', (bytes: Buffer) => reader.push(bytes));
  pipe.on('error', () => end(0));
  pipe.on('close', () => end(0));
  return {
    write(buffers, sent) {
      pipe.cork();
      for (const buffer of buffers) pipe.write(buffer);
      if (sent !== undefined) pipe.write('', sent);
      pipe.uncork();
    },
  };
}
