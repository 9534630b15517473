import type { Warehouse } from '../../infra/clickhouse/warehouse.ts';

/** A list that fits into one parameter. */
const idsPerStatement = 1_000;

export interface DeletedStreams {
  readonly deploymentId: string;
  readonly threadIds: readonly string[];
  /** Only these runs of the threads. */
  readonly runIds?: readonly string[];
  readonly signal?: AbortSignal;
}

/**
 * Deletes the kept events of threads, or of single runs of them, for good. Resolves when they are gone. Events that are still
 * in the log come after it: whoever deletes a run does so when nothing produces for it any more, and asks again later or leaves
 * the rest to expire. A deletion rewrites data, so that many at once go into one call. Repeating it is harmless.
 *
 * @throws what the warehouse throws.
 */
export async function deleteStreamEvents(
  warehouse: Warehouse,
  { deploymentId, threadIds, runIds, signal }: DeletedStreams,
): Promise<void> {
  for (const threads of pieces(threadIds)) {
    for (const runs of runIds === undefined ? [undefined] : pieces(runIds)) {
      await warehouse.command({
        name: 'delete-stream-events',
        sql: `ALTER TABLE stream_events DELETE WHERE organization_id = {deployment:UUID}
          AND thread_id IN {threads:Array(UUID)} ${runs ? 'AND run_id IN {runs:Array(UUID)}' : ''}`,
        params: { deployment: deploymentId, threads, ...(runs && { runs }) },
        profile: 'mutation',
        timeoutMs: 3_600_000,
        ...(signal && { signal }),
      });
    }
  }
}

function* pieces(ids: readonly string[]): Generator<readonly string[]> {
  for (let from = 0; from < ids.length; from += idsPerStatement) yield ids.slice(from, from + idsPerStatement);
}
