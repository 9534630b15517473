import type { Sql } from '../../../infra/postgres/database.ts';

export interface EndedWithWebhook {
  readonly deploymentId: string;
  readonly runId: string;
  /** `kwargs.webhook`; undefined: nothing is recorded. */
  readonly webhook: string | undefined;
  /** Final values of the run, as JSON text. */
  readonly values?: string | undefined;
  /** Error of a failed run. */
  readonly error?: string | undefined;
}

/**
 * Records a webhook for the end of a run. Call it in the transaction that ends the run, after the update of its row and
 * before a deletion of the row, so that a crash cannot lose the webhook. Repeating it changes nothing.
 */
export async function recordWebhook(sql: Sql, ended: EndedWithWebhook): Promise<void> {
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
    [ended.deploymentId, ended.runId, removeNul(ended.webhook), ended.values ?? null, removeNul(ended.error) ?? null],
  );
  await sql.execute("SELECT pg_notify('agent_webhooks', $1)", [ended.deploymentId]);
}

/** Removes NUL characters, which Postgres cannot store in text. */
function removeNul(text: string | undefined): string | undefined {
  return text?.replaceAll('\0', '');
}
