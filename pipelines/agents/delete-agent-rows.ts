/**
 * Deletes the rows of agent servers.
 *
 *   1. Close the deployments, so that no row is added to them.
 *   2. Wait until no process that serves them has a heartbeat, within a limit; later writes of such a process are fenced.
 *   3. Delete the rows in Postgres: runs and threads before state, because state is written only under the locks of runs
 *      and threads. Delete the stored events of streams, and dead-letter records.
 *
 * Idempotent. The rows of `agents.deployments` stay, closed.
 */
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { deleteRows } from '../../infra/clickhouse/delete-rows.ts';
import type { Database } from '../../infra/postgres/database.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { poll } from '../../infra/timeouts/poll.ts';

export interface AgentRowsDeps {
  readonly database: Database;
  readonly clickhouse: ClickHouse;
  readonly logger: Logger;
}

/** Timeout of each statement, which may delete all rows of a deployment or a workspace. */
export const deletionTimeoutMs = 3_600_000;
/** The same for requests, which hold connections of their organisation and delay a shutdown. */
export const requestDeletionTimeoutMs = 300_000;

const deleteDeploymentRowsSql = (table: string) => `DELETE FROM agents.${table} WHERE deployment_id = ANY ($1::uuid[])`;
const deleteStateRowsSql = (table: string) =>
  `DELETE FROM agents.${table} WHERE split_part(thread_id, ':', 1) = ANY ($1::uuid[]::text[])`;
const agentDeletionStatements = [
  ...['crons', 'webhooks', 'runs', 'threads', 'deleted_threads'].map(deleteDeploymentRowsSql),
  ...['checkpoint_writes', 'checkpoint_blobs', 'checkpoints'].map(deleteStateRowsSql),
  ...['store_items', 'assistants'].map(deleteDeploymentRowsSql),
];

/** The statement locks the rows before it changes them; see `agents.require_open_deployment`. */
const closeSql = `
UPDATE agents.deployments SET closed_at = coalesce(closed_at, now())
FROM (SELECT deployment_id AS id FROM agents.deployments WHERE deployment_id = ANY ($1::uuid[]) FOR UPDATE) locked
WHERE deployment_id = locked.id`;

/**
 * Maximum time to wait for processes to end. Processes that still run after this time are fenced in Postgres; the
 * second purge deletes the events that they publish.
 */
const processTimeoutMs = 30_000;
const pollIntervalMs = 250;

/**
 * Returns a function that executes one statement of a deletion in a transaction of its own. It throws the reason of the
 * signal.
 */
export function createDeletion(database: Database, signal: AbortSignal | undefined) {
  return (sql: string, params: readonly unknown[]): Promise<number> => {
    signal?.throwIfAborted();
    return database.transaction((tx) => tx.execute(sql, params), { timeoutMs: deletionTimeoutMs });
  };
}

/** @throws errors of the stores; the reason of the signal */
export async function deleteAgentRows(
  deps: AgentRowsDeps,
  deploymentIds: readonly string[],
  signal?: AbortSignal,
): Promise<void> {
  const { database, clickhouse } = deps;
  const execute = createDeletion(database, signal);
  await execute(closeSql, [deploymentIds]);
  await waitForProcesses(deps, deploymentIds, signal);
  for (const deletion of agentDeletionStatements) await execute(deletion, [deploymentIds]);
  // The keys of all topics of agent servers begin with the id of the deployment.
  await execute(`DELETE FROM dead_letters WHERE encode(substring(key FOR 36), 'escape') = ANY ($1::uuid[]::text[])`, [
    deploymentIds,
  ]);
  await deleteRows(clickhouse, {
    name: 'delete-deployment-stream_events',
    table: 'stream_events',
    condition: 'organization_id IN {deployments:Array(UUID)}',
    params: { deployments: deploymentIds },
    timeoutMs: deletionTimeoutMs,
    ...(signal && { signal }),
  });
}

async function waitForProcesses(
  { database, logger }: AgentRowsDeps,
  deploymentIds: readonly string[],
  signal: AbortSignal | undefined,
): Promise<void> {
  const areGone = async () => {
    const alive = await database.query(
      'SELECT FROM agents.processes WHERE deployment_id = ANY ($1::uuid[]) AND alive_until > clock_timestamp() LIMIT 1',
      [deploymentIds],
    );
    return alive.length === 0;
  };
  if (await poll(areGone, { intervalMs: pollIntervalMs, timeoutMs: processTimeoutMs, signal })) return;
  signal?.throwIfAborted();
  logger.warn({ deploymentIds }, 'agent servers of deleted deployments are still running; deleting their rows anyway');
}
