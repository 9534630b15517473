import type { Database } from '../../infra/postgres/database.ts';

/** What can be deleted as a whole. */
export interface Truncation {
  readonly runs: boolean;
  readonly threads: boolean;
  readonly assistants: boolean;
  readonly crons: boolean;
  readonly store: boolean;
  readonly checkpointer: boolean;
}

const ofRows = (table: string, more = '') => `DELETE FROM agents.${table} WHERE deployment_id = $1::uuid${more}`;
const ofState = (table: string) => `DELETE FROM agents.${table} WHERE split_part(thread_id, ':', 1) = $1::uuid::text`;
const state = ['checkpoint_blobs', 'checkpoint_writes', 'checkpoints'].map(ofState);

/** The assistants that the server made for its graphs stay: without them no graph could be run until it starts anew. */
const statements: Readonly<Record<keyof Truncation, readonly string[]>> = {
  runs: [
    ofRows('runs'),
    'UPDATE agents.threads SET status = rest_status, next_due_at = NULL, next_caller_id = NULL WHERE deployment_id = $1::uuid',
  ],
  crons: [ofRows('crons')],
  store: [ofRows('store_items')],
  checkpointer: state,
  threads: [...state, ofRows('runs'), ofRows('threads')],
  assistants: [ofRows('assistants', ` AND NOT metadata @> '{"created_by": "system"}'`)],
};

/** Deletes rows of a deployment, for the tests of its operator. */
export async function truncateAgents(database: Database, deploymentId: string, what: Truncation): Promise<void> {
  await database.transaction(async (tx) => {
    for (const [name, deletions] of Object.entries(statements)) {
      if (!what[name as keyof Truncation]) continue;
      for (const deletion of deletions) await tx.execute(deletion, [deploymentId]);
    }
  });
}
