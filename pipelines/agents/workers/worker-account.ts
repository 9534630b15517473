import type { Database, Sql } from '../../../infra/postgres/database.ts';
import { openLimitedAccount } from '../../../infra/postgres/limited-account.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';

export interface WorkerAccount {
  /** Postgres as the processes that run graph code reach it. */
  readonly url: string;
  /** Whether it reaches rows of the deployment alone. */
  readonly isBound: boolean;
  close(): Promise<void>;
}

/** What savers and the store of graphs need. Whether a lease holds they ask a function that reads the rows of runs for them. */
const tables = ['checkpoints', 'checkpoint_blobs', 'checkpoint_writes', 'store_items', 'store_vectors'];

/**
 * The account in Postgres of processes that run graph code: the one that was set, else one made for this process that sees state
 * and store alone, and of these the rows of one deployment. Where none can be made it is Runlake's own, with a warning. The tables must be there already.
 */
export async function openWorkerAccount(options: {
  readonly database: Database;
  readonly deploymentId: string;
  /** The address of `database`. */
  readonly databaseUrl: string;
  /** RUNLAKE_AGENTS_DATABASE_URL. */
  readonly givenUrl?: string | undefined;
  readonly authorities?: readonly string[] | undefined;
  readonly logger: Logger;
}): Promise<WorkerAccount> {
  const { database, deploymentId, databaseUrl: url, givenUrl, authorities, logger } = options;
  const nothing = async () => undefined;
  if (givenUrl !== undefined) {
    const isBound = await isBoundTo(database, deploymentId, decodeURIComponent(new URL(givenUrl).username));
    return { url: givenUrl, isBound, close: nothing };
  }
  const whenMade = (sql: Sql, name: string) => bindAccount(sql, deploymentId, name);
  const shared = { database, url, authorities, logger };
  const account = await openLimitedAccount({
    ...shared,
    prefix: 'graphs_of_runlake',
    schema: 'agents',
    tables,
    whenMade,
  });
  if (account !== undefined) return { ...account, isBound: true };
  logger.warn(
    'graph code reaches Postgres with the account of Runlake: let that account create roles, or set RUNLAKE_AGENTS_DATABASE_URL',
  );
  return { url, isBound: false, close: nothing };
}

/** Rows of accounts that were dropped go. */
async function bindAccount(sql: Sql, deploymentId: string, name: string): Promise<void> {
  await sql.execute('DELETE FROM agents.graph_accounts WHERE account NOT IN (SELECT rolname FROM pg_roles)');
  await sql.execute(
    `INSERT INTO agents.graph_accounts (account, deployment_id) VALUES ($1, $2)
     ON CONFLICT (account) DO UPDATE SET deployment_id = EXCLUDED.deployment_id`,
    [name, deploymentId],
  );
}

async function isBoundTo(database: Database, deploymentId: string, account: string): Promise<boolean> {
  const [row] = await database.query<{ deployment_id: string }>(
    'SELECT deployment_id FROM agents.graph_accounts WHERE account = $1',
    [account],
  );
  return row?.deployment_id === deploymentId;
}
