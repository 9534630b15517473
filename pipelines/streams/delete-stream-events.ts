import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { deleteRows } from '../../infra/clickhouse/delete-rows.ts';

/** Maximum number of ids per statement. The limit keeps a list within the size limit of a parameter. */
const maxIdsPerStatement = 1_000;

export interface DeletedStreams {
  readonly deploymentId: string;
  readonly threadIds: readonly string[];
  /** If present, only the events of these runs are deleted. */
  readonly runIds?: readonly string[];
  readonly signal?: AbortSignal;
}

/**
 * Deletes the stored events of threads, or of single runs of threads, permanently. Resolves when the events have been
 * deleted. Events that are still in the log are stored after the deletion. Callers therefore delete a run only after
 * its producers have stopped, and then either call this function again or let the remaining events expire. A deletion
 * rewrites data parts, so pass many ids in one call. Idempotent.
 *
 * @throws errors of ClickHouse.
 */
export async function deleteStreamEvents(
  clickhouse: ClickHouse,
  { deploymentId, threadIds, runIds, signal }: DeletedStreams,
): Promise<void> {
  for (const threads of splitIntoChunks(threadIds)) {
    for (const runs of runIds === undefined ? [undefined] : splitIntoChunks(runIds)) {
      await deleteRows(clickhouse, {
        name: 'delete-stream-events',
        table: 'stream_events',
        condition: `organization_id = {deployment:UUID} AND thread_id IN {threads:Array(UUID)}
          ${runs ? 'AND run_id IN {runs:Array(UUID)}' : ''}`,
        params: { deployment: deploymentId, threads, ...(runs && { runs }) },
        timeoutMs: 3_600_000,
        ...(signal && { signal }),
      });
    }
  }
}

function* splitIntoChunks(ids: readonly string[]): Generator<readonly string[]> {
  for (let from = 0; from < ids.length; from += maxIdsPerStatement) yield ids.slice(from, from + maxIdsPerStatement);
}
