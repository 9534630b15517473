import type { Database, Sql } from '../../../infra/postgres/database.ts';
import { openLimitedAccount } from '../../../infra/postgres/limited-account.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';

export interface WorkerAccount {
  /** Connection URL of Postgres for worker processes. */
  readonly url: string;
  /** Whether the account can access only the rows of the deployment. */
  readonly isRestrictedToDeployment: boolean;
  close(): Promise<void>;
}

/** Tables that savers and stores access. They check leases with a database function, so they need no access to runs. */
const workerTables = ['checkpoints', 'checkpoint_blobs', 'checkpoint_writes', 'store_items', 'store_vectors'];

/**
 * Opens the Postgres account of worker processes: the configured account or, if none is configured, a new one that can
 * access only checkpoints and store of one deployment. If Runlake cannot create accounts, workers use the account of
 * Runlake, and a warning is logged. The tables must exist.
 */
export async function openWorkerAccount(options: {
  readonly database: Database;
  readonly deploymentId: string;
  /** Connection URL of `database`. */
  readonly databaseUrl: string;
  /** Value of RUNLAKE_AGENTS_DATABASE_URL. */
  readonly givenUrl?: string | undefined;
  readonly authorities?: readonly string[] | undefined;
  readonly logger: Logger;
}): Promise<WorkerAccount> {
  const { database, deploymentId, databaseUrl: url, givenUrl, authorities, logger } = options;
  const noop = async () => undefined;
  if (givenUrl !== undefined) {
    const isRestrictedToDeployment = await isBoundTo(
      database,
      deploymentId,
      decodeURIComponent(new URL(givenUrl).username),
    );
    return { url: givenUrl, isRestrictedToDeployment, close: noop };
  }
  const onCreate = (sql: Sql, name: string) => bindAccount(sql, deploymentId, name);
  const shared = { database, url, authorities, logger };
  const account = await openLimitedAccount({
    ...shared,
    prefix: 'graphs_of_runlake',
    schema: 'agents',
    tables: workerTables,
    onCreate,
  });
  if (account !== undefined) return { ...account, isRestrictedToDeployment: true };
  logger.warn(
    'graph code uses the Postgres account of Runlake: allow that account to create roles, or set RUNLAKE_AGENTS_DATABASE_URL',
  );
  return { url, isRestrictedToDeployment: false, close: noop };
}

/** Binds the account to the deployment, and deletes bindings of accounts that no longer exist. */
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
