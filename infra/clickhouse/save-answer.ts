import { type FileHandle, open } from 'node:fs/promises';
import { runlakeError } from '../errors/runlake-error.ts';
import { workFileError } from '../errors/work-file-error.ts';
import { chunksOf } from './chunks-of.ts';
import { type Answer, codeInHead, maxExceptionBytes, readAnswer, throwExceptionIn } from './read-answer.ts';

/** Last bytes of a complete Parquet file. Source: the Parquet format. */
const parquetEnd = Buffer.from('PAR1');

/**
 * Writes the body of a response to a file while it arrives; it reads more from the connection only after the previous
 * bytes are written. Errors are detected as in {@link readAnswer}. A body without a Parquet footer is also an error:
 * servers before 25.11 end a body like that if the query fails midway. After an error the caller must remove the file.
 *
 * @throws ClickHouseError, WORK_FILE_UNUSABLE, the reason of `signal`, or the network error.
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
        tail = chunk.length >= maxExceptionBytes ? chunk : lastBytes(tail, chunk);
      }
    } finally {
      // ClickHouse also closes the connection after such an exception, which is the more specific error.
      throwExceptionIn(tail, headers);
    }
    signal.throwIfAborted();
    if (!tail.subarray(-parquetEnd.length).equals(parquetEnd)) throw runlakeError('CLICKHOUSE_UNAVAILABLE');
    await onDisk(path, () => (file as FileHandle).close());
    return { bytes };
  } finally {
    stream.destroy();
    // No effect if the file is already closed.
    await file?.close().catch(() => {});
  }
}

function lastBytes(tail: Buffer, chunk: Buffer): Buffer {
  return Buffer.concat([tail.subarray(-maxExceptionBytes), chunk]);
}

async function onDisk<T>(path: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw workFileError(path, error);
  }
}
