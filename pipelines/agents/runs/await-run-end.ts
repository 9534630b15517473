import { isRunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Database } from '../../../infra/postgres/database.ts';
import { endSeq, type RunEnd, type RunReadStart, type StreamHub, type StreamReader } from '../streams/stream-types.ts';
import { readRunEnd } from './published-ends.ts';
import { readRun } from './read-run.ts';
import type { Run, RunIds } from './run.ts';

/**
 * Waits until a run has ended and returns its outcome, for the routes `wait` and `join`.
 *
 * Invariant: no end is missed, and the database is not polled.
 *
 *   1. Attach a reader to the events of the run, either before the run is created or when the wait begins.
 *   2. If the reader was attached after the run was created, read the row of the run afterwards. If the run has already
 *      ended, its outcome is committed and can be read. If the run ends later, it publishes its end after the commit,
 *      so the reader receives the end.
 *   3. The end event contains the outcome, unless the values are large. Read large values from `agents.final_values`,
 *      which keeps them for some minutes, or, if they are missing there, from the row of the thread. If the run no longer
 *      exists, the outcome is an error.
 *   4. If the reader was closed as too slow or misses events, continue at step 1.
 */

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
  run: RunIds,
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

async function readStoredEnd(database: Database, run: RunIds, reader: StreamReader): Promise<string | undefined> {
  let isUnfinished = false;
  try {
    const row = await readRunEnd(database, run.deploymentId, run);
    if (row === undefined) return encodeMissingRun(run);
    isUnfinished = row.status === 'pending' || row.status === 'running';
    if (isUnfinished) return undefined;
    return row.error ? encodeError(row.error) : encodeValues(row.values, row.interrupts ?? undefined);
  } finally {
    if (!isUnfinished) reader.close();
  }
}

/** Reads events up to the end of the run. Returns undefined if the reader is closed, was too slow or misses events. */
async function readEnd(reader: StreamReader, signal: AbortSignal): Promise<RunEnd | undefined> {
  const close = () => reader.close();
  signal.addEventListener('abort', close);
  try {
    if (signal.aborted) return undefined;
    for await (const { isEnd, data } of reader) {
      if (isEnd) return JSON.parse(Buffer.from(data).toString('utf8')) as RunEnd;
    }
  } catch (error) {
    if (!isRunlakeError(error) || !readerReplacementCodes.has(error.code)) throw error;
  } finally {
    signal.removeEventListener('abort', close);
    close();
  }
  return undefined;
}

const readerReplacementCodes: ReadonlySet<string> = new Set(['STREAM_READER_TOO_SLOW', 'STREAM_INCOMPLETE']);

async function encodeEnd(database: Database, run: RunIds, end: RunEnd): Promise<string> {
  if (end.error !== undefined) return encodeError(end.error);
  const isComplete = end.values !== undefined && (!end.interrupted || end.interrupts !== undefined);
  if (isComplete) return encodeValues(JSON.stringify(end.values), end.interrupts);
  const row = await readRunEnd(database, run.deploymentId, run);
  // A run that succeeded has values, so `{}` would be wrong. A run that was stopped may have none.
  if (row === undefined && end.status === 'success') return encodeMissingRun(run);
  return encodeValues(row?.values, row?.interrupts ?? (end.interrupted ? {} : undefined));
}

function encodeMissingRun({ runId }: RunIds): string {
  return encodeError({ error: 'RunNotFound', message: runlakeError('RUN_NOT_FOUND', { run: runId }).message });
}

/**
 * Encodes missing values as `{}`, because clients read members of the result. Source of `__interrupt__`: `invoke` of
 * LangGraph.
 */
function encodeValues(values: string | null | undefined, interrupts?: RunEnd['interrupts']): string {
  const text = values === null || values === undefined || values === 'null' ? '{}' : values;
  if (interrupts === undefined) return text;
  const waiting = JSON.stringify(Object.values(interrupts).flat());
  // Drop values that are not an object, because the result must be an object with the member `__interrupt__`.
  const members = text.startsWith('{') ? text.slice(1, -1).trim() : '';
  return `{${members}${members === '' ? '' : ','}"__interrupt__":${waiting}}`;
}

function encodeError(error: { readonly error: string; readonly message: string }): string {
  return JSON.stringify({ __error__: error });
}

interface FollowDeps {
  readonly deploymentId: string;
  readonly database: Database;
  readonly hub: StreamHub;
}

/**
 * Attaches a reader to an existing run. If the run is resumable, its events are stored and the reader starts at
 * `requestedStart`. Otherwise the reader starts at the first event that arrives after this call.
 *
 * Reads the row of the run after the reader is attached, so that no end is missed. If the run is unfinished, the
 * reader receives its end. If the run has ended, a reader that starts at the next event is closed. Any other reader
 * returns the stored events and finishes; if the end is not yet in the log, the reader first waits until an executor
 * has published the end.
 *
 * @throws RUN_NOT_FOUND
 */
export async function followRun(
  deps: FollowDeps,
  ids: { readonly threadId: string; readonly runId: string },
  requestedStart: RunReadStart,
): Promise<{ readonly run: Run; readonly reader: StreamReader }> {
  const { deploymentId, database, hub } = deps;
  // Before the row is read, because the run may publish events meanwhile.
  let reader = await hub.readRun({ deploymentId, ...ids }, 'now');
  try {
    const run = await readRun(database, deploymentId, ids);
    if (requestedStart === 'now' || !run.kwargs.resumable) {
      if (hasEnded(run)) reader.close();
      return { run, reader };
    }
    reader.close();
    reader = await hub.readRun({ deploymentId, ...ids }, requestedStart);
    const { status } = hasEnded(run) ? run : await readRun(database, deploymentId, ids);
    if (hasEnded({ status })) {
      const attempt = await readUnpublishedAttempt(deps, ids.runId);
      if (attempt === undefined || isPastEnd(requestedStart, attempt)) void reader.finish();
    }
    return { run, reader };
  } catch (error) {
    reader.close();
    throw error;
  }
}

/** Returns the attempt of a run whose end is not yet in the log; undefined if the end is in the log. */
async function readUnpublishedAttempt({ deploymentId, database }: FollowDeps, runId: string) {
  const [row] = await database.query<{ attempt: number }>(
    'SELECT attempt FROM agents.runs WHERE deployment_id = $1 AND run_id = $2 AND end_published = false',
    [deploymentId, runId],
    { name: 'agents_coming_end' },
  );
  return row?.attempt;
}

/** Returns true if the reader has already received the end of this attempt. */
function isPastEnd(from: RunReadStart, attempt: number): boolean {
  if (typeof from === 'string') return false;
  return from.attempt > attempt || (from.attempt === attempt && from.seq >= endSeq);
}

function hasEnded({ status }: Pick<Run, 'status'>): boolean {
  return status !== 'pending' && status !== 'running';
}
