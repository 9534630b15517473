import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { readStreamPage, type StreamLimits, type StreamPage } from './stream-page.ts';

export interface RunStreamQuery extends StreamLimits {
  readonly deploymentId: string;
  readonly threadId: string;
  readonly runId: string;
  /** Read events after this one. Default: from the start. */
  readonly after?: { readonly attempt: number; readonly seq: number } | undefined;
}

/**
 * Reads a page of the stored events of a run, ordered by attempt and sequence number. Empty for a run of another deployment.
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
