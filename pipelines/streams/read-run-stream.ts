import type { Warehouse } from '../../infra/clickhouse/warehouse.ts';
import { readStreamPage, type StreamLimits, type StreamPage } from './stream-page.ts';

export interface RunStreamQuery extends StreamLimits {
  readonly deploymentId: string;
  readonly threadId: string;
  readonly runId: string;
  /** The event after which to go on. Default: from the beginning. */
  readonly after?: { readonly attempt: number; readonly seq: number } | undefined;
}

/**
 * The stored events of a run, by attempt and number, a page of them. Empty for a run of another deployment.
 * @throws what the warehouse throws.
 */
export function readRunStream(
  warehouse: Warehouse,
  { deploymentId, threadId, runId, after = { attempt: 0, seq: 0 }, ...limits }: RunStreamQuery,
): Promise<StreamPage> {
  return readStreamPage(
    warehouse,
    {
      name: 'read-run-stream',
      scope: 'organization_id = {deployment:UUID} AND thread_id = {thread:UUID} AND run_id = {run:UUID}',
      order: ['attempt', 'seq'],
      // The bound on the attempt alone is what the key is searched by.
      after: 'attempt >= {attempt:Int64} AND (attempt, seq) > ({attempt:Int64}, {seq:Int64})',
      params: { deployment: deploymentId, thread: threadId, run: runId, ...after },
    },
    limits,
  );
}
