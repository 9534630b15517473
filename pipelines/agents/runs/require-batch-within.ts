import type { Sql } from '../../../infra/postgres/database.ts';
import { assistantIdOf } from '../assistants/system-assistant.ts';
import { requireWithin } from '../page-within.ts';
import type { RequestedRun } from './request-run.ts';

/**
 * Checks the size of the response to a batch of runs before any run is created. The response repeats, for each run, the
 * config and context of its assistant and the headers and user of the request, so it can be much larger than the
 * request.
 *
 * @throws ANSWER_TOO_LARGE
 */
export async function requireBatchWithin(
  sql: Sql,
  deploymentId: string,
  runs: readonly RequestedRun[],
  limitBytes: number,
): Promise<void> {
  const assistantIds = runs.map(({ request }) => assistantIdOf(request.assistant_id));
  const rows = await sql.query<{ assistant_id: string; bytes: number }>(
    `SELECT assistant_id, octet_length(config::text) + coalesce(octet_length(context::text), 0) AS bytes
     FROM agents.assistants WHERE deployment_id = $1 AND assistant_id = ANY($2::uuid[])`,
    [deploymentId, [...new Set(assistantIds)]],
  );
  const bytesOf = new Map(rows.map(({ assistant_id, bytes }) => [assistant_id, bytes]));
  const shared = Buffer.byteLength(JSON.stringify([runs[0]?.headers, runs[0]?.user]));
  const bytes = assistantIds.reduce((sum, id) => sum + (bytesOf.get(id) ?? 0) + shared, 0);
  requireWithin(runs.length, bytes, limitBytes);
}
