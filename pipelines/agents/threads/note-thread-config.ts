import type { Sql } from '../../../infra/postgres/database.ts';
import type { GraphConfig } from '../runs/run.ts';
import { chosenUserId } from '../runs/run-request.ts';
import type { Thread } from './thread.ts';

/** What only the server says of a run, or is no configuration but a place. */
const notItsOwn = new Set([
  ...['run_id', 'thread_id', 'graph_id', 'assistant_id', 'checkpoint_id', 'checkpoint_ns', 'checkpoint_map'],
  ...['langgraph_auth_user_id', 'langgraph_auth_user', 'langgraph_auth_permissions'],
]);

/**
 * Notes on a thread what a run on it is configured with: its assistant's configuration with the request's over it, without what the
 * server adds; `before` is what the thread says of an earlier run, whose `user_id` stays unless the request chooses another. Where neither
 * assistant nor request says anything, nothing changes.
 */
export async function noteThreadConfig(
  sql: Sql,
  { deploymentId, threadId }: { readonly deploymentId: string; readonly threadId: string },
  ofAssistant: GraphConfig,
  asked: GraphConfig | null | undefined,
  before: Thread['config'] | undefined,
): Promise<void> {
  const { configurable: _, ...rest } = { ...ofAssistant, ...asked };
  if (Object.keys({ ...ofAssistant, ...asked }).length === 0) return;
  const user_id = chosenUserId(asked, before, ofAssistant);
  const all = Object.entries({
    ...ofAssistant.configurable,
    ...asked?.configurable,
    ...(user_id !== undefined && { user_id }),
  });
  const configurable = Object.fromEntries(all.filter(([name]) => !notItsOwn.has(name)));
  const config = { ...rest, ...(Object.keys(configurable).length > 0 && { configurable }) };
  if (Object.keys(config).length === 0) return;
  await sql.execute(
    `UPDATE agents.threads SET config = $3::json
     WHERE deployment_id = $1 AND thread_id = $2 AND NOT hidden AND config::text <> ($3::json)::text`,
    [deploymentId, threadId, JSON.stringify(config)],
    { name: 'agents_note_thread_config' },
  );
}
