import { existsSync, realpathSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Config } from '../../../../infra/config/settings.ts';
import { runlakeError } from '../../../../infra/errors/runlake-error.ts';
import { type AccountSource, openProcessAccounts } from '../../../../infra/isolation/process-accounts.ts';
import type { Database, Sql } from '../../../../infra/postgres/database.ts';
import { openLimitedAccount } from '../../../../infra/postgres/limited-account.ts';
import type { Logger } from '../../../../infra/telemetry/logger.ts';
import type { GraphsFile } from '../../graphs/graphs-file.ts';

export interface WorkerDatabaseAccount {
  /** Connection URL of Postgres for worker processes. */
  readonly url: string;
  /** Whether the account can access only rows of the deployment. */
  readonly isRestrictedToDeployment: boolean;
  close(): Promise<void>;
}

/**
 * Tables that checkpoint savers and stores access. They check leases with a database function, so they need no access
 * to the table of runs.
 */
const workerTables = ['checkpoints', 'checkpoint_blobs', 'checkpoint_writes', 'store_items', 'store_vectors'];

/**
 * Opens the Postgres account of worker processes: the configured account or, if none is configured, a new account that
 * can access only the checkpoints and the store of one deployment. If Runlake cannot create accounts, workers use the
 * account of Runlake, and a warning is logged. The tables must already exist.
 */
export async function openWorkerAccount(options: {
  readonly database: Database;
  readonly deploymentId: string;
  /** Connection URL of the database that `database` accesses. */
  readonly databaseUrl: string;
  /** Value of RUNLAKE_AGENTS_DATABASE_URL. */
  readonly configuredUrl?: string | undefined;
  readonly authorities?: readonly string[] | undefined;
  readonly logger: Logger;
}): Promise<WorkerDatabaseAccount> {
  const { database, deploymentId, databaseUrl: url, configuredUrl, authorities, logger } = options;
  const noop = async () => undefined;
  if (configuredUrl !== undefined) {
    const isRestrictedToDeployment = await isBoundTo(
      database,
      deploymentId,
      decodeURIComponent(new URL(configuredUrl).username),
    );
    return { url: configuredUrl, isRestrictedToDeployment, close: noop };
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

/** Binds the account to the deployment, and deletes the bindings of accounts that no longer exist. */
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

export interface GraphIsolation {
  /**
   * Operating-system accounts for processes that run project code. If absent, they run under the account of Runlake.
   */
  readonly accounts: AccountSource | undefined;
  /** Description of the isolation. The text completes the sentence "graph code has …". */
  readonly words: string;
  close(): Promise<void>;
}

/** Entries of the data folder that contain secrets or the data of other tenants. */
const privateEntries = [
  ...['secret.key', 'postgres.password', 'run.json', 'postgres', 'clickhouse', 'exports'],
  ...['deployments/builds', 'deployments/caches', 'deployments/sources'],
];

/** Existing files and folders of the data folder that project code must not be able to read. */
export function listPrivatePaths(dataDir: string): string[] {
  return privateEntries.map((name) => resolve(dataDir, name)).filter((path) => existsSync(path));
}

/**
 * Decides whether each process that runs project code gets its own operating-system account. The decision depends on
 * RUNLAKE_AGENTS_ISOLATION and on whether a trial process turns out to be isolated.
 *
 * @throws GRAPH_CODE_NOT_ISOLATED if isolation is required but not possible.
 */
export async function openGraphIsolation(
  file: GraphsFile,
  { agentsIsolation, dataDir }: Pick<Config, 'agentsIsolation' | 'dataDir'>,
): Promise<GraphIsolation> {
  const accounts =
    agentsIsolation === 'off'
      ? 'RUNLAKE_AGENTS_ISOLATION is off'
      : await openProcessAccounts({
          readablePaths: listReadablePaths(file),
          closed: listPrivatePaths(dataDir),
        });
  if (typeof accounts === 'string') {
    if (agentsIsolation === 'required') throw runlakeError('GRAPH_CODE_NOT_ISOLATED', { reason: accounts });
    return {
      accounts: undefined,
      words: `the user id of Runlake, and is as trusted as the operator (${accounts})`,
      close: async () => undefined,
    };
  }
  return {
    accounts,
    words: 'a user id of its own for each process, and cannot read secrets of Runlake',
    close: () => accounts.close(),
  };
}

/** Paths that project code must be able to read: the project, its packages, and the program of Runlake. */
function listReadablePaths({ folder, graphs, auth, app }: GraphsFile): string[] {
  const modulePaths = [...graphs, auth, app].flatMap((module) => (module ? [module.path] : []));
  const program = fileURLToPath(new URL('.', import.meta.url));
  const paths = [folder, join(folder, 'node_modules'), ...modulePaths, program];
  return paths.flatMap((path) => (existsSync(path) ? [realpathSync(path)] : []));
}
