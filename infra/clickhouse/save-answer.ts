import { type FileHandle, open } from 'node:fs/promises';
import { fault } from '../errors/runlake-error.ts';
import { workFileFault } from '../errors/work-file-fault.ts';
import { chunksOf } from './chunks-of.ts';
import { type Answer, codeInHead, longestExceptionBytes, readAnswer, throwExceptionIn } from './read-answer.ts';

/** What a whole Parquet file ends with. Source: the Parquet format. */
const parquetEnd = Buffer.from('PAR1');

/**
 * Writes the body of an answer to a file while it comes in: the next bytes are taken off the connection when those before are
 * written. Failures are told as {@link readAnswer} tells them; one too is a body that ends without a Parquet footer, which is
 * how servers before 25.11 end one that failed on the way. What a failure leaves is the caller's to remove.
 *
 * @throws ClickHouseError, WORK_FILE_UNUSABLE, the reason of `signal`, or what the network failed with.
 */
export async function saveAnswer(answer: Answer, path: string, signal: AbortSignal): Promise<{ bytes: number }> {
  const { headers, stream } = answer;
  if (codeInHead(answer) !== undefined) {
    await readAnswer(answer);
  }
  let file: FileHandle | undefined;
  let tail: Buffer = Buffer.alloc(0);
  let bytes = 0;
  try {
    signal.throwIfAborted();
    file = await onDisk(path, () => open(path, 'w', 0o600));
    try {
      for await (const chunk of chunksOf(stream)) {
        await onDisk(path, () => (file as FileHandle).appendFile(chunk));
        bytes += chunk.length;
        tail = chunk.length >= longestExceptionBytes ? chunk : lastBytes(tail, chunk);
      }
    } finally {
      // ClickHouse also breaks the connection off after such an exception; the exception says more.
      throwExceptionIn(tail, headers);
    }
    signal.throwIfAborted();
    if (!tail.subarray(-parquetEnd.length).equals(parquetEnd)) throw fault('WAREHOUSE_UNAVAILABLE');
    await onDisk(path, () => (file as FileHandle).close());
    return { bytes };
  } finally {
    stream.destroy();
    // Where it is closed already, nothing happens.
    await file?.close().catch(() => {});
  }
}

function lastBytes(tail: Buffer, chunk: Buffer): Buffer {
  return Buffer.concat([tail.subarray(-longestExceptionBytes), chunk]);
}

async function onDisk<T>(path: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw workFileFault(path, error);
  }
}
