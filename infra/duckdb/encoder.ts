/**
 * Runs DuckDB in a child process, so that DuckDB's memory use and crashes do not affect the worker.
 *
 * Invariant: the child has at most one request at a time. After a call has failed, no process writes to the files of
 * that call any more.
 *
 *   1. A call waits for earlier calls. If its signal is aborted, the wait ends immediately.
 *   2. The first call starts the child. If the child has ended, the next call starts a new child.
 *   3. The request is sent to the child. The response, the exit of the child or the signal settles the call, whichever
 *      comes first.
 *   4. If the signal is aborted, the child is killed, because DuckDB may take a long time to interrupt a statement.
 *   5. A failed call waits until a killed child has exited, and then deletes the files that the request created.
 */
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { forkProgram, LastLines } from '../embedded/child-program.ts';
import { type RunlakeError, runlakeError } from '../errors/runlake-error.ts';
import type { ChildRequest, ChildResponse, EncodeRequest, ListRequest, ParquetFooter, Work } from './encode-sql.ts';

/**
 * Executes requests one at a time, each in an empty database that can access only the folder of the request.
 *
 * Every call throws PARQUET_ENCODER_FAILED if DuckDB fails or its process exits, WORK_FILE_UNUSABLE if the disk is
 * full, or the reason of the caller's signal if the signal is aborted. An abort kills the process. When a failed call
 * throws, the files that it created have been deleted.
 */
export interface Encoder {
  /** Rewrites a Parquet file with different types, compression and row groups. @returns the footer of the new file. */
  encode(request: EncodeRequest, signal?: AbortSignal): Promise<ParquetFooter>;
  /** Writes some columns of a Parquet file as CSV. */
  list(request: ListRequest, signal?: AbortSignal): Promise<void>;
  inspect(file: ParquetFile, signal?: AbortSignal): Promise<ParquetFooter>;
  /** Process id. Undefined while no process is running. */
  readonly pid: number | undefined;
  /** Kills the process. Running requests fail. Idempotent. */
  close(): Promise<void>;
}

export interface ParquetFile {
  readonly folder: string;
  readonly source: string;
}

export interface EncoderOptions {
  /** Memory limit of DuckDB's buffers. The process needs about 200 MB in addition. */
  readonly memoryLimitBytes: number;
}

/** Opens an encoder. Its process starts when the first request is sent. */
export function openEncoder({ memoryLimitBytes }: EncoderOptions): Encoder {
  let process: EncoderProcess | undefined;
  /** Resolves when the last request has ended; never rejects. */
  let last: Promise<unknown> = Promise.resolve();
  let isClosed = false;

  async function run(work: Work, signal: AbortSignal | undefined): Promise<ParquetFooter | undefined> {
    if (isClosed) throw runlakeError('PARQUET_ENCODER_FAILED', { reason: 'the encoder is closed' });
    signal?.throwIfAborted();
    if (process === undefined || process.hasEnded) process = startEncoderProcess(memoryLimitBytes);
    const currentProcess = process;
    const stop = () => currentProcess.kill();
    signal?.addEventListener('abort', stop, { once: true });
    try {
      return await currentProcess.send(work);
    } catch (error) {
      if (currentProcess.isKilled || currentProcess.hasEnded) await currentProcess.gone;
      await removeCreatedFiles(work);
      signal?.throwIfAborted();
      throw error;
    } finally {
      signal?.removeEventListener('abort', stop);
    }
  }

  /** Executes the request after all earlier requests have ended. */
  async function enqueue(work: Work, signal: AbortSignal | undefined): Promise<ParquetFooter | undefined> {
    const previousWork = last;
    const result = previousWork.then(() => run(work, signal));
    last = result.catch(() => {});
    // An aborted call rejects immediately. When the earlier requests end, `run` sees the aborted signal and executes
    // nothing.
    return signal === undefined ? result : Promise.race([result, rejectIfAbortedBefore(previousWork, signal)]);
  }

  const enqueueForFooter = async (work: Work, signal: AbortSignal | undefined) =>
    (await enqueue(work, signal)) as ParquetFooter;
  return {
    encode: (request, signal) => enqueueForFooter({ kind: 'encode', request }, signal),
    inspect: (request, signal) => enqueueForFooter({ kind: 'inspect', request }, signal),
    list: async (request, signal) => void (await enqueue({ kind: 'list', request }, signal)),
    get pid() {
      return process?.hasEnded === false ? process.pid : undefined;
    },
    async close() {
      isClosed = true;
      process?.kill();
      await process?.gone;
    },
  };
}

/** Rejects if `signal` is aborted before `previousWork` resolves; otherwise never settles. */
function rejectIfAbortedBefore(earlier: Promise<unknown>, signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    const stop = () => reject(signal.reason);
    if (signal.aborted) stop();
    signal.addEventListener('abort', stop, { once: true });
    earlier.then(() => signal.removeEventListener('abort', stop));
  });
}

async function removeCreatedFiles({ kind, request }: Work): Promise<void> {
  await rm(join(request.folder, 'spill'), { recursive: true, force: true });
  if (kind !== 'inspect') await rm(join(request.folder, request.target), { force: true });
}

/** An encoder process, from startup to exit. */
interface EncoderProcess {
  readonly pid: number | undefined;
  readonly hasEnded: boolean;
  readonly isKilled: boolean;
  /** Resolves when the process has exited. */
  readonly gone: Promise<void>;
  /**
   * Executes one request. The caller must wait until the request has settled before it calls this method again.
   *
   * @throws PARQUET_ENCODER_FAILED if DuckDB fails or the process exits.
   */
  send(work: Work): Promise<ParquetFooter | undefined>;
  kill(): void;
}

/**
 * Converts DuckDB's message to an error. The message quotes paths and values. Therefore the error contains only the
 * kind of the message and, if memory was exhausted, its first line.
 */
function toEncoderError(text: string): RunlakeError {
  const [, whole = '', kind = 'an error without a name'] =
    /^(?:Error: )?(([A-Z][A-Za-z ]+ Error)[^\n]*)/.exec(text) ?? [];
  const cause = text.slice(0, 2_000);
  if (/no space left/i.test(text))
    return runlakeError('WORK_FILE_UNUSABLE', { file: 'of the encoder', reason: 'ENOSPC' }, { cause });
  return runlakeError(
    'PARQUET_ENCODER_FAILED',
    { reason: kind === 'Out of Memory Error' ? whole.slice(0, 200) : kind },
    { cause },
  );
}

/**
 * Starts an encoder process. Callers can send requests immediately; the requests wait in the IPC channel until the
 * process is ready.
 */
function startEncoderProcess(memoryLimitBytes: number): EncoderProcess {
  const child = forkProgram({
    program: './encoder-child',
    base: import.meta.url,
    args: [String(memoryLimitBytes)],
    cwd: tmpdir(),
  });
  const output = new LastLines(child.stderr);
  let pending:
    | { resolve: (footer: ParquetFooter | undefined) => void; reject: (error: RunlakeError) => void }
    | undefined;
  let hasEnded = false;
  let isKilled = false;
  let number = 0;

  const end = (reason: string) => {
    hasEnded = true;
    pending?.reject(runlakeError('PARQUET_ENCODER_FAILED', { reason }));
    pending = undefined;
  };
  const gone = new Promise<void>((resolve) => {
    child.once('error', (error) => {
      // The process did not start or cannot receive messages, so it is unusable.
      child.kill('SIGKILL');
      end(error.message);
      if (child.pid === undefined) resolve();
    });
    child.once('exit', (code, signal) => {
      const lastLine = output.last(/./);
      end(`the process exited with ${signal ?? `code ${code}`}${lastLine === undefined ? '' : ` (${lastLine})`}`);
      resolve();
    });
  });
  child.on('message', (response: ChildResponse) => {
    if (response.number !== number || pending === undefined) return;
    const { resolve, reject } = pending;
    pending = undefined;
    if (response.reason === undefined) resolve(response.footer);
    else reject(toEncoderError(response.reason));
  });
  return {
    pid: child.pid,
    gone,
    get hasEnded() {
      return hasEnded;
    },
    get isKilled() {
      return isKilled;
    },
    send: (work) =>
      new Promise((resolve, reject) => {
        pending = { resolve, reject };
        number++;
        const request: ChildRequest = { number, ...work };
        child.send(request, (error) => {
          if (error === null) return;
          // A process that cannot receive requests is unusable.
          child.kill('SIGKILL');
          end(error.message);
        });
      }),
    kill() {
      if (hasEnded || isKilled) return;
      isKilled = true;
      child.kill('SIGKILL');
    },
  };
}

/**
 * A pool of encoders. Each encoder is used by one caller at a time. Returned encoders are reused; they are closed after
 * they have been idle for 30 s.
 */
export interface EncoderPool {
  borrow(): Encoder;
  release(encoder: Encoder): void;
  /** Closes all encoders. Running requests of borrowed encoders fail. */
  close(): Promise<void>;
}

const maxIdleMs = 30_000;

export function openEncoderPool(options: EncoderOptions): EncoderPool {
  const all = new Set<Encoder>();
  const idle = new Map<Encoder, NodeJS.Timeout>();
  const end = (encoder: Encoder) => {
    clearTimeout(idle.get(encoder));
    idle.delete(encoder);
    all.delete(encoder);
    return encoder.close();
  };
  return {
    borrow() {
      const [free] = idle.keys();
      if (free === undefined) {
        const encoder = openEncoder(options);
        all.add(encoder);
        return encoder;
      }
      clearTimeout(idle.get(free));
      idle.delete(free);
      return free;
    },
    release(encoder) {
      if (!all.has(encoder)) return;
      idle.set(
        encoder,
        setTimeout(() => void end(encoder), maxIdleMs),
      );
    },
    close: async () => void (await Promise.all([...all].map(end))),
  };
}
