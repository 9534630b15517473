/**
 * Waits until a run has ended and returns its outcome, as `wait` and `join` answer it.
 *
 * Invariant: no end is missed, and the database is not polled.
 *
 *   1. A reader is attached to the run's events: before the run is made, or now.
 *   2. Now: its row is read after that. A run that has ended by then has committed its end; one that ends later publishes its end after
 *      that commit, and the reader gets it.
 *   3. The event of the end holds the answer. Large values are not in it: they were stored with the run for some minutes
 *      (`final-values.ts`). Without either the row of the thread is read.
 *   4. A reader that is closed as too slow, or that misses events, is replaced: back to 1.
 */

import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Database } from '../../../infra/postgres/database.ts';
import type { RunEnd, StreamHub, StreamReader } from '../streams/stream-ports.ts';
import { readRunEnd } from './read-run-end.ts';

export interface AwaitedRun {
  readonly deploymentId: string;
  readonly threadId: string;
  readonly runId: string;
}

interface WaitingPorts {
  readonly hub: StreamHub;
  readonly database: Database;
}

/**
 * @param attached where the run was made after it was attached.
 * @returns JSON text: the final values, with `__interrupt__`, a list of {id, value}, beside them where the graph waits; or
 *   `{"__error__": {error, message}}`. Undefined where `signal` was aborted first.
 */
export async function awaitRunEnd(
  ports: WaitingPorts,
  run: AwaitedRun,
  { attached, signal }: { readonly attached?: StreamReader; readonly signal: AbortSignal },
): Promise<string | undefined> {
  let reader = attached;
  while (!signal.aborted) {
    if (reader === undefined) {
      reader = await ports.hub.readRun(run, 'now');
      const ended = await endInRows(ports.database, run, reader);
      if (ended !== undefined) return ended;
    }
    const end = await endOf(reader, signal);
    if (end !== undefined) return answerOf(ports.database, run, end);
    reader = undefined;
  }
  return undefined;
}

async function endInRows(database: Database, run: AwaitedRun, reader: StreamReader): Promise<string | undefined> {
  let goesOn = false;
  try {
    const row = await readRunEnd(database, run.deploymentId, run);
    goesOn = row?.status === 'pending' || row?.status === 'running';
    if (goesOn) return undefined;
    return row?.error ? errorText(row.error) : textOf(row?.values, row?.interrupts ?? undefined);
  } finally {
    if (!goesOn) reader.close();
  }
}

/** Undefined where the reader was cut off, or closed. */
async function endOf(reader: StreamReader, signal: AbortSignal): Promise<RunEnd | undefined> {
  const close = () => reader.close();
  signal.addEventListener('abort', close);
  try {
    if (signal.aborted) return undefined;
    for await (const { isEnd, data } of reader) {
      if (isEnd) return JSON.parse(Buffer.from(data).toString('utf8')) as RunEnd;
    }
  } catch (error) {
    if (!isRunlakeError(error) || !cutOff.has(error.code)) throw error;
  } finally {
    signal.removeEventListener('abort', close);
    close();
  }
  return undefined;
}

const cutOff: ReadonlySet<string> = new Set(['STREAM_READER_TOO_SLOW', 'STREAM_INCOMPLETE']);

async function answerOf(database: Database, run: AwaitedRun, end: RunEnd): Promise<string> {
  if (end.error !== undefined) return errorText(end.error);
  const isWhole = end.values !== undefined && (!end.interrupted || end.interrupts !== undefined);
  if (isWhole) return textOf(JSON.stringify(end.values), end.interrupts);
  const row = await readRunEnd(database, run.deploymentId, run);
  return textOf(row?.values, row?.interrupts ?? (end.interrupted ? {} : undefined));
}

/** Clients look for a field in it: null would break them. Source for `__interrupt__`: `invoke` of the library. */
function textOf(values: string | null | undefined, interrupts?: RunEnd['interrupts']): string {
  const text = values === null || values === undefined || values === 'null' ? '{}' : values;
  if (interrupts === undefined) return text;
  const waiting = JSON.stringify(Object.values(interrupts).flat());
  // State that is no object has no place beside it.
  const members = text.startsWith('{') ? text.slice(1, -1).trim() : '';
  return `{${members}${members === '' ? '' : ','}"__interrupt__":${waiting}}`;
}

function errorText(error: { readonly error: string; readonly message: string }): string {
  return JSON.stringify({ __error__: error });
}
