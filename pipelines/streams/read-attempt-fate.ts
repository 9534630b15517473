import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';

/** Outcome of an attempt at a run: a later attempt has begun, or the run has ended. */
export type AttemptFate = 'superseded' | 'ended';

/**
 * Outcome of an attempt according to the stored events; undefined if they do not show one yet.
 *
 * @throws errors of ClickHouse.
 */
export async function readAttemptFate(
  clickhouse: ClickHouse,
  attempt: {
    readonly deploymentId: string;
    readonly threadId: string;
    readonly runId: string;
    readonly attempt: number;
    readonly signal?: AbortSignal;
  },
): Promise<AttemptFate | undefined> {
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
