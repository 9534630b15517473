import type { Sql } from '../../../infra/postgres/database.ts';
import { searchableText } from './searchable-text.ts';
import type { Interrupt } from './thread.ts';

/**
 * Writes values, interrupts and status to the row of a thread, after its state was updated outside a run.
 *
 * @returns the number that the update takes in the sequence of run starts, for its stream event; 0 if nothing was
 *   written because the write lease has expired or the thread was deleted.
 */
export async function recordThreadState(
  database: Sql,
  deploymentId: string,
  threadId: string,
  threadLeaseToken: string,
  state: {
    readonly values: unknown;
    readonly next: readonly string[];
    readonly interrupts: Readonly<Record<string, readonly Interrupt[]>>;
  },
): Promise<number> {
  const text = JSON.stringify(state.values ?? null);
  const restStatus = state.next.length > 0 || Object.keys(state.interrupts).length > 0 ? 'interrupted' : 'idle';
  const [row] = await database.query<{ starts: number }>(
    `UPDATE agents.threads SET starts = starts + 1, values = $3, searchable_values = $4, interrupts = $5, rest_status = $6, error = NULL,
       status = CASE WHEN status = 'busy' THEN status ELSE $6 END,
       expires_at = clock_timestamp() + ttl_minutes * interval '1 minute',
       updated_at = clock_timestamp(), state_updated_at = clock_timestamp()
     WHERE deployment_id = $1 AND thread_id = $2 AND write_token = $7 AND write_until > clock_timestamp() RETURNING starts`,
    [
      deploymentId,
      threadId,
      text,
      searchableText(text),
      JSON.stringify(state.interrupts),
      restStatus,
      threadLeaseToken,
    ],
  );
  return row?.starts ?? 0;
}
