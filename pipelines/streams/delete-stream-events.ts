import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { deleteRows } from '../../infra/clickhouse/delete-rows.ts';
import { seqNumbersPerStart } from './stream-event.ts';

/** Maximum number of threads per statement. The limit keeps a list within the size limit of a parameter. */
const maxThreadsPerStatement = 1_000;

export interface DeletedStreams {
  readonly deploymentId: string;
  readonly threads: readonly {
    readonly threadId: string;
    /** Only the events of this many starts are deleted; a new thread with the same id has later ones. */
    readonly starts: number;
  }[];
  readonly signal?: AbortSignal | undefined;
}

/**
 * Deletes the stored events of threads permanently. Resolves when the events have been deleted. Events that are still
 * in the log are stored after the deletion. A deletion rewrites data parts, so pass many threads in one call. Keeps the
 * ends of runs that never started, which contain no data of the thread. Idempotent.
 *
 * @throws errors of ClickHouse.
 */
export async function deleteStreamEvents(
  clickhouse: ClickHouse,
  { deploymentId, threads, signal }: DeletedStreams,
): Promise<void> {
  for (let from = 0; from < threads.length; from += maxThreadsPerStatement) {
    const chunk = threads.slice(from, from + maxThreadsPerStatement);
    await deleteRows(clickhouse, {
      name: 'delete-stream-events',
      table: 'stream_events',
      condition: `organization_id = {deployment:UUID} AND thread_id IN {threads:Array(UUID)} AND thread_seq > 0
        AND thread_seq < arrayElement({ends:Array(Int64)}, indexOf({threads:Array(UUID)}, thread_id))`,
      params: {
        deployment: deploymentId,
        threads: chunk.map(({ threadId }) => threadId),
        ends: chunk.map(({ starts }) => (starts + 1) * seqNumbersPerStart),
      },
      timeoutMs: 3_600_000,
      signal,
    });
  }
}
