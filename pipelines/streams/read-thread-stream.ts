import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { readStreamPage, type StreamLimits, type StreamPage } from './stream-page.ts';

export interface ThreadStreamQuery extends StreamLimits {
  readonly deploymentId: string;
  readonly threadId: string;
  /** Read events after this number in the thread. Default: from the start. */
  readonly after?: number | undefined;
}

/**
 * Reads a page of the stored events of all runs of a thread, ordered by their number in the thread. If two events have
 * the same number, the one that is first in the log is read. Empty for a thread of another deployment.
 *
 * @throws errors of ClickHouse.
 */
export function readThreadStream(
  clickhouse: ClickHouse,
  { deploymentId, threadId, after = -1, ...limits }: ThreadStreamQuery,
): Promise<StreamPage> {
  return readStreamPage(
    clickhouse,
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
