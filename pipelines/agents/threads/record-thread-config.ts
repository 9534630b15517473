import type { Sql } from '../../../infra/postgres/database.ts';
import type { GraphConfig } from '../runs/run.ts';
import { chosenUserId } from '../runs/run-request.ts';
import type { Thread } from './thread.ts';

/** Keys of `configurable` that only the server sets, or that name a checkpoint. */
const serverKeys = new Set([
  ...['run_id', 'thread_id', 'graph_id', 'assistant_id', 'checkpoint_id', 'checkpoint_ns', 'checkpoint_map'],
  ...['langgraph_auth_user_id', 'langgraph_auth_user', 'langgraph_auth_permissions'],
]);

/**
 * Stores the config of a run on its thread: that of the assistant, overridden by that of the request, without the keys
 * of the server. `before` is the config of an earlier run on the thread; its `user_id` remains unless the request sets
 * another one. Changes nothing if neither assistant nor request has a config.
 */
export async function recordThreadConfig(
  sql: Sql,
  { deploymentId, threadId }: { readonly deploymentId: string; readonly threadId: string },
  ofAssistant: GraphConfig,
  requested: GraphConfig | null | undefined,
  before: Thread['config'] | undefined,
): Promise<void> {
  const { configurable: _, ...rest } = { ...ofAssistant, ...requested };
  if (Object.keys({ ...ofAssistant, ...requested }).length === 0) return;
  const user_id = chosenUserId(requested, before, ofAssistant);
  const all = Object.entries({
    ...ofAssistant.configurable,
    ...requested?.configurable,
    ...(user_id !== undefined && { user_id }),
  });
  const configurable = Object.fromEntries(all.filter(([name]) => !serverKeys.has(name)));
  const config = { ...rest, ...(Object.keys(configurable).length > 0 && { configurable }) };
  if (Object.keys(config).length === 0) return;
  await sql.execute(
    `UPDATE agents.threads SET config = $3::json
     WHERE deployment_id = $1 AND thread_id = $2 AND NOT hidden AND config::text <> ($3::json)::text`,
    [deploymentId, threadId, JSON.stringify(config)],
    { name: 'agents_note_thread_config' },
  );
}
