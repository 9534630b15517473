import { finished, type Readable } from 'node:stream';

/** Bytes that are buffered for a slow reader before the stream is paused. */
const maxBufferedBytes = 1024 * 1024;

/**
 * Yields all received chunks of a body, then throws its error, if it failed. Iterating the stream directly would drop
 * unread chunks when the connection breaks, and with them the exception that ClickHouse writes at the end.
 *
 * @throws the error of the stream, including one from before the iteration, or an error if the stream closed prematurely.
 */
export async function* chunksOf(stream: Readable): AsyncGenerator<Buffer> {
  const waiting: Buffer[] = [];
  let waitingBytes = 0;
  let isOver = false;
  let failure: unknown;
  let wake = () => {};
  stream.on('data', (chunk: Buffer) => {
    waiting.push(chunk);
    waitingBytes += chunk.length;
    if (waitingBytes > maxBufferedBytes) stream.pause();
    wake();
  });
  // Also called for a stream that has already ended.
  finished(stream, (error) => {
    failure = error ?? undefined;
    isOver = true;
    wake();
  });
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
