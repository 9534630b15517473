import type { Sql } from '../../../infra/postgres/database.ts';
import type { GraphConfig } from '../runs/run.ts';

/** What only the server says of a run, or is no configuration but a place. */
const notItsOwn = new Set([
  ...['run_id', 'thread_id', 'graph_id', 'assistant_id', 'checkpoint_id', 'checkpoint_ns', 'checkpoint_map'],
  ...['user_id', 'langgraph_auth_user_id', 'langgraph_auth_user', 'langgraph_auth_permissions'],
]);

/**
 * Notes on a thread what a run on it is configured with: its assistant's configuration with the request's over it, without what the
 * server adds. Where neither says anything, what the thread says of an earlier run stays.
 */
export async function noteThreadConfig(
  sql: Sql,
  { organizationId, threadId }: { readonly organizationId: string; readonly threadId: string },
  ofAssistant: GraphConfig,
  asked: GraphConfig | null | undefined,
): Promise<void> {
  const all = Object.entries({ ...ofAssistant.configurable, ...asked?.configurable });
  const configurable = Object.fromEntries(all.filter(([name]) => !notItsOwn.has(name)));
  const { configurable: _, ...rest } = { ...ofAssistant, ...asked };
  const config = { ...rest, ...(Object.keys(configurable).length > 0 && { configurable }) };
  if (Object.keys(config).length === 0) return;
  await sql.execute(
    `UPDATE agents.threads SET config = $3::json
     WHERE organization_id = $1 AND thread_id = $2 AND NOT hidden AND config::text <> ($3::json)::text`,
    [organizationId, threadId, JSON.stringify(config)],
    { name: 'agents_note_thread_config' },
  );
}
