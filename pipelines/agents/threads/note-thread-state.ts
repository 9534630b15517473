import type { Sql } from '../../../infra/postgres/database.ts';
import { searchableText } from './searchable-text.ts';
import type { Interrupt } from './thread.ts';

/**
 * Writes what clients see of a thread whose state was written outside a run. @returns the number of this among the starts of its runs,
 * for the event that tells of it; 0, with nothing written, where the hold is over or the thread gone.
 */
export async function noteThreadState(
  database: Sql,
  deploymentId: string,
  threadId: string,
  holdToken: string,
  state: {
    readonly values: unknown;
    readonly next: readonly string[];
    readonly interrupts: Readonly<Record<string, readonly Interrupt[]>>;
  },
): Promise<number> {
  const text = JSON.stringify(state.values ?? null);
  const rest = state.next.length > 0 || Object.keys(state.interrupts).length > 0 ? 'interrupted' : 'idle';
  const [row] = await database.query<{ starts: number }>(
    `UPDATE agents.threads SET starts = starts + 1, values = $3, searchable_values = $4, interrupts = $5, rest_status = $6, error = NULL,
       status = CASE WHEN status = 'busy' THEN status ELSE $6 END,
       expires_at = clock_timestamp() + ttl_minutes * interval '1 minute',
       updated_at = clock_timestamp(), state_updated_at = clock_timestamp()
     WHERE deployment_id = $1 AND thread_id = $2 AND write_token = $7 AND write_until > clock_timestamp() RETURNING starts`,
    [deploymentId, threadId, text, searchableText(text), JSON.stringify(state.interrupts), rest, holdToken],
  );
  return row?.starts ?? 0;
}
