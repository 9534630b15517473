/**
 * DuckDB in a child process of its own: the memory that it takes, and a crash, are not the worker's.
 *
 * Invariant: at most one request is with the child, and once a call has failed nothing of it is still being written.
 *
 *   1. A call waits for those before it; its signal ends the wait at once.
 *   2. The first one starts the child, as does the first one behind a child that ended.
 *   3. The request goes to the child. Its answer, its end or the signal settles the call, whichever comes first.
 *   4. A signal kills the child, for a statement cannot be relied on to stop soon.
 *   5. A failed call waits until its child, if it was killed, has gone; then it removes what the request had begun.
 */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { fault } from '../errors/runlake-error.ts';
import type { EncodeRequest, ListRequest, ParquetFacts } from './encode-request.ts';
import { type EncoderProcess, startEncoderProcess } from './encoder-process.ts';
import type { Work } from './messages.ts';

/**
 * Requests are done one after the other, each in an empty database that can reach the request's folder and nothing else.
 *
 * Every call throws PARQUET_ENCODER_FAILED where DuckDB refuses or its process ends, or the reason of the caller's signal; an
 * abort ends the process. Files that a failed request had begun are gone when it throws.
 */
export interface Encoder {
  /** Rewrites a Parquet file with other types, compression and row groups. @returns what the new file's footer says. */
  encode(request: EncodeRequest, signal?: AbortSignal): Promise<ParquetFacts>;
  /** Writes some columns of a Parquet file as CSV. */
  list(request: ListRequest, signal?: AbortSignal): Promise<void>;
  /** What the footer of a Parquet file says. */
  inspect(file: ParquetFile, signal?: AbortSignal): Promise<ParquetFacts>;
  /** Of the process, where it runs. */
  readonly pid: number | undefined;
  /** Ends the process; requests under way fail. Safe to call twice. */
  close(): Promise<void>;
}

export interface ParquetFile {
  readonly folder: string;
  readonly source: string;
}

export interface EncoderOptions {
  /** Of DuckDB's buffers. Its process takes some 200 MB more. */
  readonly memoryLimitBytes: number;
}

/** The process starts with the first request. */
export function openEncoder({ memoryLimitBytes }: EncoderOptions): Encoder {
  let process: EncoderProcess | undefined;
  let before: Promise<unknown> = Promise.resolve();
  let closed = false;

  async function run(work: Work, signal: AbortSignal | undefined): Promise<ParquetFacts | undefined> {
    if (closed) throw fault('PARQUET_ENCODER_FAILED', { reason: 'the encoder is closed' });
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

  /** Behind the calls before it. */
  async function inTurn(work: Work, signal: AbortSignal | undefined): Promise<ParquetFacts | undefined> {
    const turn = before;
    const mine = (async () => {
      await settled(turn);
      return run(work, signal);
    })();
    before = mine.catch(() => {});
    // Whoever gives up need not wait for its turn; there it is found to have been aborted and nothing is begun.
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

/** Rejects where `signal` is aborted while `turn` has not come; else never settles. */
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
