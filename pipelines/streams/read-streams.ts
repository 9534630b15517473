import type { ClickHouse, Query, QueryParameter } from '../../infra/clickhouse/clickhouse.ts';
import { readNullableTextRows } from '../../infra/clickhouse/row-binary.ts';
import type { StreamEvent } from './stream-event.ts';

export interface StreamRow
  extends Omit<StreamEvent, 'deploymentId' | 'threadId' | 'data' | 'kept' | 'expiresAtMicros'> {
  /** The data of the event, unchanged. */
  readonly data: Buffer;
  /** Log position of the event; for a redelivered event, the position of the first delivery. */
  readonly partition: number;
  readonly offset: number;
}

export interface StreamPage {
  readonly rows: readonly StreamRow[];
  /** Whether more events follow. The next page starts after the last row of this page. */
  readonly more: boolean;
}

interface StreamLimits {
  /** Maximum number of rows; at most 10,000. */
  readonly limitRows: number;
  /** Maximum total size of the data. If a single event is larger, it is returned alone. */
  readonly limitBytes: number;
  /** Time in microseconds since 1970. Events that expired before this time are not read. Default: now. */
  readonly nowMicros?: number;
  readonly signal?: AbortSignal;
}

/** Describes the events to read and their order, as SQL over the columns of `stream_events`. */
interface StreamRead {
  readonly name: string;
  /** Condition on deployment, thread and, for a single run, the run: a prefix of the sorting key. */
  readonly scope: string;
  /** Columns that number the events in the scope and determine their order. */
  readonly order: readonly string[];
  /** Condition that selects the events after the cursor. */
  readonly after: string;
  readonly params: Readonly<Record<string, QueryParameter>>;
}

const dayMicros = 86_400_000_000;

/** The columns of {@link StreamRow}, each of which is read as text or bytes. */
const columns = [
  'run_id',
  'attempt',
  'seq',
  'thread_seq',
  'mode',
  'event',
  'namespace',
  'data',
  'is_end',
  'toUnixTimestamp64Micro(created_at)',
  'log_partition',
  'log_offset',
];

/**
 * Reads a page in two steps: first keys and sizes until the page is full, then the events with exactly these keys. It
 * therefore reads no more data than fits on the page. A redelivered event is returned once, even if ClickHouse has not
 * merged its copies. If an event follows, in the log, the first event of a higher attempt of its run, it is omitted,
 * because its worker had already lost the run. Log positions are compared only within a partition; if the number of
 * partitions was changed between two attempts, the events of both attempts are returned.
 *
 * @throws errors of ClickHouse.
 */
async function readStreamPage(
  clickhouse: ClickHouse,
  read: StreamRead,
  { limitRows, limitBytes, nowMicros = Date.now() * 1_000, signal }: StreamLimits,
): Promise<StreamPage> {
  const rows = Math.min(limitRows, 10_000);
  const query = (step: string, select: string, bound = ''): Query => ({
    name: `${read.name}-${step}`,
    sql: `SELECT ${select} FROM stream_events LEFT ANY JOIN (
        SELECT run_id, log_partition, attempt, min(toNullable(first_offset)) OVER (
          PARTITION BY run_id, log_partition ORDER BY attempt DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS higher_attempt_offset FROM (
          SELECT run_id, log_partition, attempt, min(log_offset) AS first_offset FROM stream_events
          WHERE ${read.scope} AND expires_at > fromUnixTimestamp64Micro({now:Int64} - ${dayMicros})
          GROUP BY run_id, log_partition, attempt
        )
      ) AS fences USING (run_id, log_partition, attempt)
      WHERE ${read.scope} AND expires_at > fromUnixTimestamp64Micro({now:Int64}) AND ${read.after} ${bound}
        AND (isNull(higher_attempt_offset) OR log_offset < higher_attempt_offset)
      ORDER BY ${read.order.join(', ')}, log_offset
      LIMIT 1 BY ${read.order.join(', ')}`,
    params: { ...read.params, now: nowMicros },
    signal,
  });

  const keysQuery = query('keys', `[${read.order.join(', ')}] AS location, data_bytes`);
  const keys = await clickhouse.query<{ location: number[]; data_bytes: number }>({
    ...keysQuery,
    sql: `${keysQuery.sql} LIMIT ${rows + 1}`,
  });
  let fitting = 0;
  let bytes = 0;
  for (const { data_bytes } of keys.slice(0, rows)) {
    bytes += data_bytes;
    if (fitting > 0 && bytes > limitBytes) break;
    fitting++;
  }
  const last = keys[fitting - 1];
  if (last === undefined) return { rows: [], more: false };

  const upperBoundCondition = `AND (${read.order.join(', ')}) <= (${last.location.join(', ')})`;
  const select = columns.map((column) => `CAST(${column} AS Nullable(String))`).join(', ');
  const response = await clickhouse.queryText({ ...query('events', select, upperBoundCondition), format: 'RowBinary' });
  return { rows: readNullableTextRows(response, columns.length).map(toRow), more: fitting < keys.length };
}

function toRow(values: readonly (Buffer | undefined)[]): StreamRow {
  const text = (location: number) => values[location]?.toString('utf8') ?? '';
  const number = (location: number) => Number(text(location));
  return {
    runId: text(0),
    attempt: number(1),
    seq: number(2),
    threadSeq: number(3),
    mode: text(4),
    event: text(5),
    namespace: text(6),
    data: values[7] ?? Buffer.alloc(0),
    isEnd: text(8) === 'true',
    createdAtMicros: number(9),
    partition: number(10),
    offset: number(11),
  };
}

export interface RunStreamQuery extends StreamLimits, Pick<StreamEvent, 'deploymentId' | 'threadId' | 'runId'> {
  /** Position after which events are read. Default: the start of the stream. */
  readonly after?: { readonly attempt: number; readonly seq: number } | undefined;
}

/**
 * Reads a page of the stored events of a run, ordered by attempt and sequence number. The page is empty for a run of
 * another deployment.
 *
 * @throws errors of ClickHouse.
 */
export function readRunStream(
  clickhouse: ClickHouse,
  { deploymentId, threadId, runId, after = { attempt: 0, seq: 0 }, ...limits }: RunStreamQuery,
): Promise<StreamPage> {
  return readStreamPage(
    clickhouse,
    {
      name: 'read-run-stream',
      scope: 'organization_id = {deployment:UUID} AND thread_id = {thread:UUID} AND run_id = {run:UUID}',
      order: ['attempt', 'seq'],
      // ClickHouse can use the sorting key only for the separate bound on the attempt.
      after: 'attempt >= {attempt:Int64} AND (attempt, seq) > ({attempt:Int64}, {seq:Int64})',
      params: { deployment: deploymentId, thread: threadId, run: runId, ...after },
    },
    limits,
  );
}

interface ThreadStreamQuery extends StreamLimits {
  readonly deploymentId: string;
  readonly threadId: string;
  /** Number in the thread after which events are read. Default: the start of the stream. */
  readonly after?: number | undefined;
  /** Numbers of earlier events that are read as well. */
  readonly including?: readonly number[];
}

/**
 * Reads a page of the stored events of all runs of a thread, ordered by their number in the thread. If two events have
 * the same number, the event that comes first in the log is read. The page is empty for a thread of another deployment.
 *
 * @throws errors of ClickHouse.
 */
export function readThreadStream(
  clickhouse: ClickHouse,
  { deploymentId, threadId, after = -1, including = [], ...limits }: ThreadStreamQuery,
): Promise<StreamPage> {
  return readStreamPage(
    clickhouse,
    {
      name: 'read-thread-stream',
      scope: 'organization_id = {deployment:UUID} AND thread_id = {thread:UUID}',
      order: ['thread_seq'],
      after: '(thread_seq > {after:Int64} OR has({including:Array(Int64)}, thread_seq))',
      params: { deployment: deploymentId, thread: threadId, after, including },
    },
    limits,
  );
}

/** Outcome of an attempt to execute a run: either a later attempt has begun, or the run has ended. */
export type AttemptOutcome = 'superseded' | 'ended';

/**
 * Returns the outcome of an attempt according to the stored events; undefined if they do not show an outcome yet.
 *
 * @throws errors of ClickHouse.
 */
export async function readAttemptOutcome(
  clickhouse: ClickHouse,
  attempt: Pick<StreamEvent, 'deploymentId' | 'threadId' | 'runId' | 'attempt'> & { readonly signal?: AbortSignal },
): Promise<AttemptOutcome | undefined> {
  const [row] = await clickhouse.query<{ superseded: number; ended: number }>({
    name: 'read-attempt-fate',
    sql: `SELECT countIf(seq = 1 AND attempt > {attempt:Int64}) AS superseded, countIf(is_end) AS ended FROM stream_events
      WHERE organization_id = {deployment:UUID} AND thread_id = {thread:UUID} AND run_id = {run:UUID}
        AND attempt >= {attempt:Int64} AND (seq = 1 OR is_end) AND expires_at > fromUnixTimestamp64Micro({now:Int64})`,
    params: {
      deployment: attempt.deploymentId,
      thread: attempt.threadId,
      run: attempt.runId,
      attempt: attempt.attempt,
      now: Date.now() * 1_000,
    },
    ...(attempt.signal && { signal: attempt.signal }),
  });
  if (Number(row?.superseded ?? 0) > 0) return 'superseded';
  return Number(row?.ended ?? 0) > 0 ? 'ended' : undefined;
}
