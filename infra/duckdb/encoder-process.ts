import { tmpdir } from 'node:os';
import { forkProgram } from '../embedded/child-program.ts';
import { LastLines } from '../embedded/last-lines.ts';
import { type RunlakeError, runlakeError } from '../errors/runlake-error.ts';
import type { ParquetFacts } from './encode-request.ts';
import type { ChildAnswer, ChildRequest, Work } from './messages.ts';

/** One encoder process, from its start to its end. */
export interface EncoderProcess {
  readonly pid: number | undefined;
  readonly hasEnded: boolean;
  readonly isKilled: boolean;
  /** Resolves when the process has exited. */
  readonly gone: Promise<void>;
  /** Runs one request; call it again only after that. @throws PARQUET_ENCODER_FAILED if DuckDB fails or the process exits. */
  ask(work: Work): Promise<ParquetFacts | undefined>;
  kill(): void;
}

/** DuckDB's messages quote paths and values, so the error contains only the kind, and for out of memory the first line. */
function refusal(text: string): RunlakeError {
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

/** Starts a process. It accepts requests immediately; they wait in the IPC channel until the process is up. */
export function startEncoderProcess(memoryLimitBytes: number): EncoderProcess {
  const child = forkProgram({
    program: './encoder-child',
    base: import.meta.url,
    args: [String(memoryLimitBytes)],
    cwd: tmpdir(),
  });
  const output = new LastLines(child.stderr);
  let asked: { resolve: (facts: ParquetFacts | undefined) => void; reject: (error: RunlakeError) => void } | undefined;
  let hasEnded = false;
  let isKilled = false;
  let number = 0;

  const end = (reason: string) => {
    hasEnded = true;
    asked?.reject(runlakeError('PARQUET_ENCODER_FAILED', { reason }));
    asked = undefined;
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
  child.on('message', (answer: ChildAnswer) => {
    if (answer.number !== number || asked === undefined) return;
    const { resolve, reject } = asked;
    asked = undefined;
    if (answer.reason === undefined) resolve(answer.facts);
    else reject(refusal(answer.reason));
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
    ask: (work) =>
      new Promise((resolve, reject) => {
        asked = { resolve, reject };
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
