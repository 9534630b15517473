import type { Readable } from 'node:stream';
import { fault } from '../errors/runlake-error.ts';

/** Bytes that wait for a slow reader before the connection is left alone for a while. */
const mostWaitingBytes = 1024 * 1024;

/**
 * Everything that came of a body, and then its failure, if it failed. Iterating the stream itself drops what has come and was not
 * read yet as soon as the connection breaks off, and with it the exception that ClickHouse wrote last.
 *
 * @throws what the stream failed with; WAREHOUSE_UNAVAILABLE where it was closed before its end without a word.
 */
export async function* chunksOf(stream: Readable): AsyncGenerator<Buffer> {
  const waiting: Buffer[] = [];
  let waitingBytes = 0;
  let isOver = false;
  let failure: unknown;
  let wake = () => {};
  const over = (error?: unknown) => {
    failure ??= error;
    isOver = true;
    wake();
  };
  stream.on('data', (chunk: Buffer) => {
    waiting.push(chunk);
    waitingBytes += chunk.length;
    if (waitingBytes > mostWaitingBytes) stream.pause();
    wake();
  });
  stream.on('end', () => over());
  stream.on('error', over);
  stream.on('close', () => over(stream.readableEnded ? undefined : fault('WAREHOUSE_UNAVAILABLE')));
  for (;;) {
    const chunk = waiting.shift();
    if (chunk !== undefined) {
      waitingBytes -= chunk.length;
      if (waitingBytes === 0 && stream.isPaused()) stream.resume();
      yield chunk;
    } else if (isOver) {
      if (failure !== undefined) throw failure;
      return;
    } else {
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  }
}
