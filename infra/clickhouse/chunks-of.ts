import { finished, type Readable } from 'node:stream';

/** Bytes that wait for a slow reader before the connection is left alone for a while. */
const mostWaitingBytes = 1024 * 1024;

/**
 * Everything that came of a body, and then its failure, if it failed. Iterating the stream itself drops what has come and was not
 * read yet as soon as the connection breaks off, and with it the exception that ClickHouse wrote last.
 *
 * @throws what the stream failed with, also before it was asked for; an error too where it was closed before its end without a word.
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
    if (waitingBytes > mostWaitingBytes) stream.pause();
    wake();
  });
  // Tells of one too that has ended already.
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
