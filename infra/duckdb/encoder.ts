/**
 * Runs DuckDB in a child process, which isolates the worker from DuckDB's memory use and crashes.
 *
 * Invariant: the child has at most one request, and after a call has failed nothing writes its files any more.
 *
 *   1. A call waits for earlier calls; aborting its signal ends the wait immediately.
 *   2. The first call starts the child, and so does the first call after a child has ended.
 *   3. The request is sent to the child. Its response, its exit or the signal settles the call, whichever comes first.
 *   4. An aborted signal kills the child, because DuckDB may take long to interrupt a statement.
 *   5. A failed call waits until a killed child has exited; then it deletes the files that the request created.
 */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { runlakeError } from '../errors/runlake-error.ts';
import type { EncodeRequest, ListRequest, ParquetFacts } from './encode-request.ts';
import { type EncoderProcess, startEncoderProcess } from './encoder-process.ts';
import type { Work } from './messages.ts';

/**
 * Runs requests one by one, each in an empty database that can access only the request's folder.
 *
 * Every call throws PARQUET_ENCODER_FAILED if DuckDB fails or its process exits, WORK_FILE_UNUSABLE if the disk is
 * full, or the reason of the caller's signal; an abort kills the process. A failed request has deleted its files when
 * it throws.
 */
export interface Encoder {
  /** Rewrites a Parquet file with other types, compression and row groups. @returns the footer of the new file. */
  encode(request: EncodeRequest, signal?: AbortSignal): Promise<ParquetFacts>;
  /** Writes some columns of a Parquet file as CSV. */
  list(request: ListRequest, signal?: AbortSignal): Promise<void>;
  /** Reads the footer of a Parquet file. */
  inspect(file: ParquetFile, signal?: AbortSignal): Promise<ParquetFacts>;
  /** Process id, while the process runs. */
  readonly pid: number | undefined;
  /** Kills the process; running requests fail. Idempotent. */
  close(): Promise<void>;
}

export interface ParquetFile {
  readonly folder: string;
  readonly source: string;
}

export interface EncoderOptions {
  /** Limit of DuckDB's buffers. The process needs about 200 MB on top. */
  readonly memoryLimitBytes: number;
}

/** Opens an encoder. Its process starts at the first request. */
export function openEncoder({ memoryLimitBytes }: EncoderOptions): Encoder {
  let process: EncoderProcess | undefined;
  let before: Promise<unknown> = Promise.resolve();
  let closed = false;

  async function run(work: Work, signal: AbortSignal | undefined): Promise<ParquetFacts | undefined> {
    if (closed) throw runlakeError('PARQUET_ENCODER_FAILED', { reason: 'the encoder is closed' });
    signal?.throwIfAborted();
    if (process === undefined || process.hasEnded) process = startEncoderProcess(memoryLimitBytes);
    const current = process;
    const stop = () => current.kill();
    signal?.addEventListener('abort', stop, { once: true });
    try {
      return await current.ask(work);
    } catch (error) {
      if (current.isKilled || current.hasEnded) await current.gone;
      await removeBegun(work);
      signal?.throwIfAborted();
      throw error;
    } finally {
      signal?.removeEventListener('abort', stop);
    }
  }

  /** Runs the request after all earlier ones. */
  async function inTurn(work: Work, signal: AbortSignal | undefined): Promise<ParquetFacts | undefined> {
    const turn = before;
    const mine = (async () => {
      await settled(turn);
      return run(work, signal);
    })();
    before = mine.catch(() => {});
    // An aborted call rejects before its turn. When its turn comes, `run` sees the aborted signal and does nothing.
    return signal === undefined ? mine : Promise.race([mine, abortedBefore(turn, signal)]);
  }

  const facts = async (work: Work, signal: AbortSignal | undefined) => (await inTurn(work, signal)) as ParquetFacts;
  return {
    encode: (request, signal) => facts({ kind: 'encode', request }, signal),
    inspect: (request, signal) => facts({ kind: 'inspect', request }, signal),
    list: async (request, signal) => void (await inTurn({ kind: 'list', request }, signal)),
    get pid() {
      return process?.hasEnded === false ? process.pid : undefined;
    },
    async close() {
      closed = true;
      process?.kill();
      await process?.gone;
    },
  };
}

async function settled(turn: Promise<unknown>): Promise<void> {
  await turn.catch(() => {});
}

/** Rejects if `signal` is aborted before `turn` settles; otherwise never settles. */
function abortedBefore(turn: Promise<unknown>, signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    const stop = () => reject(signal.reason);
    if (signal.aborted) stop();
    signal.addEventListener('abort', stop, { once: true });
    settled(turn).then(() => signal.removeEventListener('abort', stop));
  });
}

async function removeBegun({ kind, request }: Work): Promise<void> {
  await rm(join(request.folder, 'spill'), { recursive: true, force: true });
  if (kind !== 'inspect') await rm(join(request.folder, request.target), { force: true });
}
