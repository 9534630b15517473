/**
 * Waits until a run has ended and returns its outcome, for the routes `wait` and `join`.
 *
 * Invariant: no end is missed, and the database is not polled.
 *
 *   1. Attach a reader to the events of the run, either before the run is created or now.
 *   2. If it was attached now, read the row of the run afterwards. A run that has ended by then has committed its end.
 *      A run that ends later publishes its end after that commit, so the reader receives it.
 *   3. The end event contains the outcome, unless the values are large. Then read them from `agents.final_values`,
 *      which keeps them for some minutes, or else from the row of the thread.
 *   4. If the reader was closed as too slow or misses events, continue at step 1.
 */

import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Database } from '../../../infra/postgres/database.ts';
import type { RunEnd, StreamHub, StreamReader } from '../streams/stream-types.ts';
import { readRunEnd } from './read-run-end.ts';

export interface AwaitedRun {
  readonly deploymentId: string;
  readonly threadId: string;
  readonly runId: string;
}

interface WaitingDeps {
  readonly hub: StreamHub;
  readonly database: Database;
}

/**
 * Resolves when the run has ended.
 *
 * @param attached a reader that was attached before the run was created, if there is one.
 * @returns JSON text: the final values, with a member `__interrupt__` (a list of {id, value}) if the graph is interrupted; or
 *   `{"__error__": {error, message}}`. Undefined if `signal` was aborted first.
 */
export async function awaitRunEnd(
  deps: WaitingDeps,
  run: AwaitedRun,
  { attached, signal }: { readonly attached?: StreamReader; readonly signal: AbortSignal },
): Promise<string | undefined> {
  let reader = attached;
  while (!signal.aborted) {
    if (reader === undefined) {
      reader = await deps.hub.readRun(run, 'now');
      const ended = await readStoredEnd(deps.database, run, reader);
      if (ended !== undefined) return ended;
    }
    const end = await readEnd(reader, signal);
    if (end !== undefined) return encodeEnd(deps.database, run, end);
    reader = undefined;
  }
  return undefined;
}

async function readStoredEnd(database: Database, run: AwaitedRun, reader: StreamReader): Promise<string | undefined> {
  let isUnfinished = false;
  try {
    const row = await readRunEnd(database, run.deploymentId, run);
    isUnfinished = row?.status === 'pending' || row?.status === 'running';
    if (isUnfinished) return undefined;
    return row?.error ? encodeError(row.error) : encodeValues(row?.values, row?.interrupts ?? undefined);
  } finally {
    if (!isUnfinished) reader.close();
  }
}

/** Reads events up to the end. Undefined if the reader is closed, was too slow or misses events. */
async function readEnd(reader: StreamReader, signal: AbortSignal): Promise<RunEnd | undefined> {
  const close = () => reader.close();
  signal.addEventListener('abort', close);
  try {
    if (signal.aborted) return undefined;
    for await (const { isEnd, data } of reader) {
      if (isEnd) return JSON.parse(Buffer.from(data).toString('utf8')) as RunEnd;
    }
  } catch (error) {
    if (!isRunlakeError(error) || !replaceReaderCodes.has(error.code)) throw error;
  } finally {
    signal.removeEventListener('abort', close);
    close();
  }
  return undefined;
}

const replaceReaderCodes: ReadonlySet<string> = new Set(['STREAM_READER_TOO_SLOW', 'STREAM_INCOMPLETE']);

async function encodeEnd(database: Database, run: AwaitedRun, end: RunEnd): Promise<string> {
  if (end.error !== undefined) return encodeError(end.error);
  const isComplete = end.values !== undefined && (!end.interrupted || end.interrupts !== undefined);
  if (isComplete) return encodeValues(JSON.stringify(end.values), end.interrupts);
  const row = await readRunEnd(database, run.deploymentId, run);
  return encodeValues(row?.values, row?.interrupts ?? (end.interrupted ? {} : undefined));
}

/**
 * Encodes missing values as `{}`, because clients read members of the result. Source of `__interrupt__`: `invoke` of
 * LangGraph.
 */
function encodeValues(values: string | null | undefined, interrupts?: RunEnd['interrupts']): string {
  const text = values === null || values === undefined || values === 'null' ? '{}' : values;
  if (interrupts === undefined) return text;
  const waiting = JSON.stringify(Object.values(interrupts).flat());
  // Values that are not an object are dropped, because `__interrupt__` must be a member.
  const members = text.startsWith('{') ? text.slice(1, -1).trim() : '';
  return `{${members}${members === '' ? '' : ','}"__interrupt__":${waiting}}`;
}

function encodeError(error: { readonly error: string; readonly message: string }): string {
  return JSON.stringify({ __error__: error });
}
