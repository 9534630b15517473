/**
 * Runs DuckDB in a child process, which isolates the worker from DuckDB's memory use and crashes.
 *
 * Invariant: the child has at most one request, and after a call has failed, no process writes its files any more.
 *
 *   1. A call waits for earlier calls; aborting its signal ends the wait immediately.
 *   2. The first call starts the child. The first call after a child has ended starts a new one.
 *   3. The request is sent to the child. Its response, its exit or the signal settles the call, whichever comes first.
 *   4. An aborted signal kills the child, because DuckDB may take long to interrupt a statement.
 *   5. A failed call waits until a killed child has exited; then it deletes the files that the request created.
 */
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { forkProgram, LastLines } from '../embedded/child-program.ts';
import { type RunlakeError, runlakeError } from '../errors/runlake-error.ts';
import type { ChildRequest, ChildResponse, EncodeRequest, ListRequest, ParquetFooter, Work } from './encode-sql.ts';

/**
 * Runs requests one by one, each in an empty database that can access only the request's folder.
 *
 * Every call throws PARQUET_ENCODER_FAILED if DuckDB fails or its process exits, WORK_FILE_UNUSABLE if the disk is
 * full, or the reason of the caller's signal; an abort kills the process. A failed request has deleted its files when
 * it throws.
 */
export interface Encoder {
  /** Rewrites a Parquet file with other types, compression and row groups. @returns the footer of the new file. */
  encode(request: EncodeRequest, signal?: AbortSignal): Promise<ParquetFooter>;
  /** Writes some columns of a Parquet file as CSV. */
  list(request: ListRequest, signal?: AbortSignal): Promise<void>;
  /** Reads the footer of a Parquet file. */
  inspect(file: ParquetFile, signal?: AbortSignal): Promise<ParquetFooter>;
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
  /** Limit of DuckDB's buffers. The process needs about 200 MB in addition. */
  readonly memoryLimitBytes: number;
}

/** Opens an encoder. Its process starts at the first request. */
export function openEncoder({ memoryLimitBytes }: EncoderOptions): Encoder {
  let process: EncoderProcess | undefined;
  /** Settles when the last request has ended; never rejects. */
  let last: Promise<unknown> = Promise.resolve();
  let isClosed = false;

  async function run(work: Work, signal: AbortSignal | undefined): Promise<ParquetFooter | undefined> {
    if (isClosed) throw runlakeError('PARQUET_ENCODER_FAILED', { reason: 'the encoder is closed' });
    signal?.throwIfAborted();
    if (process === undefined || process.hasEnded) process = startEncoderProcess(memoryLimitBytes);
    const current = process;
    const stop = () => current.kill();
    signal?.addEventListener('abort', stop, { once: true });
    try {
      return await current.send(work);
    } catch (error) {
      if (current.isKilled || current.hasEnded) await current.gone;
      await removeCreatedFiles(work);
      signal?.throwIfAborted();
      throw error;
    } finally {
      signal?.removeEventListener('abort', stop);
    }
  }

  /** Runs the request after all earlier ones. */
  async function enqueue(work: Work, signal: AbortSignal | undefined): Promise<ParquetFooter | undefined> {
    const earlier = last;
    const result = earlier.then(() => run(work, signal));
    last = result.catch(() => {});
    // An aborted call rejects immediately. When the earlier requests end, `run` sees the aborted signal and does
    // nothing.
    return signal === undefined ? result : Promise.race([result, rejectIfAbortedBefore(earlier, signal)]);
  }

  const readFacts = async (work: Work, signal: AbortSignal | undefined) =>
    (await enqueue(work, signal)) as ParquetFooter;
  return {
    encode: (request, signal) => readFacts({ kind: 'encode', request }, signal),
    inspect: (request, signal) => readFacts({ kind: 'inspect', request }, signal),
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

/** Rejects if `signal` is aborted before `earlier` resolves; otherwise never settles. */
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

/** One encoder process, from startup to exit. */
interface EncoderProcess {
  readonly pid: number | undefined;
  readonly hasEnded: boolean;
  readonly isKilled: boolean;
  /** Resolves when the process has exited. */
  readonly gone: Promise<void>;
  /**
   * Runs one request. Call it again only after the request has settled. @throws PARQUET_ENCODER_FAILED if DuckDB fails
   * or the process exits.
   */
  send(work: Work): Promise<ParquetFooter | undefined>;
  kill(): void;
}

/**
 * Converts DuckDB's message to an error. The message quotes paths and values, so the error contains only its kind, and
 * its first line if memory ran out.
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
 * Starts a process. Callers can send requests immediately; the requests wait in the IPC channel until the process is
 * up.
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
      // The process did not start or cannot be reached, so it is unusable.
      child.kill('SIGKILL');
      end(error.message);
      if (child.pid === undefined) resolve();
    });
    child.once('exit', (code, signal) => {
      const lastWord = output.last(/./);
      end(`the process exited with ${signal ?? `code ${code}`}${lastWord === undefined ? '' : ` (${lastWord})`}`);
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
 * Pool of encoders, each used by one caller at a time. Returned encoders are reused, and close after 30 s of idle time.
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
