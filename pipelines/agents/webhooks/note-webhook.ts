import type { Sql } from '../../../infra/postgres/database.ts';

export interface EndedWithWebhook {
  readonly deploymentId: string;
  readonly runId: string;
  /** `kwargs.webhook`; undefined: nothing is noted. */
  readonly webhook: string | undefined;
  /** The state of the thread after it, as JSON. */
  readonly values?: string | undefined;
  /** Why it failed. */
  readonly error?: string | undefined;
}

/**
 * Notes that the end of a run is to be told to its webhook. Belongs into the transaction in which the run ends, after its row says how
 * it ended and before the row goes: then every end is told, whatever dies. A second note of a run changes nothing.
 */
export async function noteWebhook(sql: Sql, ended: EndedWithWebhook): Promise<void> {
  if (ended.webhook === undefined) return;
  await sql.execute(
    `INSERT INTO agents.webhooks (deployment_id, run_id, url, body)
     SELECT deployment_id, run_id, $3, json_build_object(
       'run_id', run_id, 'thread_id', thread_id, 'assistant_id', assistant_id, 'created_at', created_at,
       'updated_at', updated_at, 'status', status, 'metadata', metadata, 'kwargs', kwargs,
       'multitask_strategy', multitask_strategy, 'run_started_at', started_at, 'run_ended_at', coalesce(ended_at, now()),
       'values', $4::json, 'error', $5::text)
     FROM agents.runs WHERE deployment_id = $1 AND run_id = $2
     ON CONFLICT DO NOTHING`,
    [ended.deploymentId, ended.runId, plain(ended.webhook), ended.values ?? null, plain(ended.error) ?? null],
  );
  await sql.execute("SELECT pg_notify('agent_webhooks', $1)", [ended.deploymentId]);
}

/** What a column of text can hold. */
function plain(text: string | undefined): string | undefined {
  return text?.replaceAll('\0', '');
}
