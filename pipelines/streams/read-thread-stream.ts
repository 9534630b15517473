import type { Warehouse } from '../../infra/clickhouse/warehouse.ts';
import { readStreamPage, type StreamLimits, type StreamPage } from './stream-page.ts';

export interface ThreadStreamQuery extends StreamLimits {
  readonly deploymentId: string;
  readonly threadId: string;
  /** The number in the thread after which to go on. Default: from the beginning. */
  readonly after?: number | undefined;
}

/**
 * The stored events of all runs of a thread, by their number in the thread, a page of them. Where two events have one number,
 * the one that came first in the log is read. Empty for a thread of another deployment.
 * @throws what the warehouse throws.
 */
export function readThreadStream(
  warehouse: Warehouse,
  { deploymentId, threadId, after = -1, ...limits }: ThreadStreamQuery,
): Promise<StreamPage> {
  return readStreamPage(
    warehouse,
    {
      name: 'read-thread-stream',
      scope: 'organization_id = {deployment:UUID} AND thread_id = {thread:UUID}',
      order: ['thread_seq'],
      after: 'thread_seq > {after:Int64}',
      params: { deployment: deploymentId, thread: threadId, after },
    },
    limits,
  );
}
