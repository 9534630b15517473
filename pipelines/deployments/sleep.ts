import type { Sql } from '../../infra/postgres/database.ts';

/**
 * Puts deployments of the types dev and dev_free to sleep that had no request for `afterMinutes` and have nothing to do:
 * no unfinished run and no cron. Their replicas are then no longer wanted. The next request wakes them
 * (`find-replica-url.ts`).
 */
export async function putIdleToSleep(database: Sql, afterMinutes: number | undefined): Promise<void> {
  if (afterMinutes === undefined) return;
  await database.execute(
    `UPDATE deployments AS d SET is_asleep = true
     WHERE NOT d.is_asleep AND d.active_revision_id IS NOT NULL AND d.source_config->>'deployment_type' IN ('dev', 'dev_free')
       AND d.last_used_at < now() - make_interval(mins => $1)
       AND NOT EXISTS (SELECT FROM agents.runs WHERE deployment_id = d.id AND status IN ('pending', 'running'))
       AND NOT EXISTS (SELECT FROM agents.crons WHERE deployment_id = d.id AND next_run_date IS NOT NULL)`,
    [afterMinutes],
  );
}
