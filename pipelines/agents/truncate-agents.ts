import type { Database } from '../../infra/postgres/database.ts';
import { recordDeletedThreads } from './threads/deleted-threads.ts';

/** Selects the data to delete. */
export interface Truncation {
  readonly runs: boolean;
  readonly threads: boolean;
  readonly assistants: boolean;
  readonly crons: boolean;
  readonly store: boolean;
  readonly checkpointer: boolean;
}

const buildDeleteRowsSql = (table: string, more = '') =>
  `DELETE FROM agents.${table} WHERE deployment_id = $1::uuid${more}`;
const buildDeleteStateSql = (table: string) =>
  `DELETE FROM agents.${table} WHERE split_part(thread_id, ':', 1) = $1::uuid::text`;
const deleteStateStatements = ['checkpoint_blobs', 'checkpoint_writes', 'checkpoints'].map(buildDeleteStateSql);

/**
 * SQL statements for each kind of data. They do not delete the assistants that the server created for its graphs,
 * because without these assistants no graph could run until the server restarts.
 */
const statements: Readonly<Record<keyof Truncation, readonly string[]>> = {
  runs: [
    buildDeleteRowsSql('runs'),
    'UPDATE agents.threads SET status = rest_status, next_due_at = NULL, next_caller_id = NULL WHERE deployment_id = $1::uuid',
  ],
  crons: [buildDeleteRowsSql('crons')],
  store: [buildDeleteRowsSql('store_items')],
  checkpointer: deleteStateStatements,
  threads: [...deleteStateStatements, buildDeleteRowsSql('runs'), buildDeleteRowsSql('threads')],
  assistants: [buildDeleteRowsSql('assistants', ` AND NOT metadata @> '{"created_by": "system"}'`)],
};

/** Deletes all selected rows of a deployment in one transaction. Meant for test environments. */
export async function truncateAgents(database: Database, deploymentId: string, what: Truncation): Promise<void> {
  await database.transaction(async (tx) => {
    for (const [name, deletions] of Object.entries(statements)) {
      if (!what[name as keyof Truncation]) continue;
      if (name === 'threads') await recordDeletedThreads(tx, deploymentId);
      for (const deletion of deletions) await tx.execute(deletion, [deploymentId]);
    }
  });
}
