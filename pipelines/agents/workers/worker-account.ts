import type { Database } from '../../../infra/postgres/database.ts';
import { openLimitedAccount } from '../../../infra/postgres/limited-account.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';

export interface WorkerAccount {
  /** Postgres as the processes that run graph code reach it. */
  readonly url: string;
  close(): Promise<void>;
}

/** What savers and the store of graphs need. Whether a lease holds they ask a function that reads the rows of runs for them. */
const tables = ['checkpoints', 'checkpoint_blobs', 'checkpoint_writes', 'store_items', 'store_vectors'];

/**
 * The account in Postgres of processes that run graph code: the one that was set, else one made for this process that sees state
 * and store alone. Where none can be made it is Runlake's own, with a warning. The tables must be there already.
 */
export async function openWorkerAccount(options: {
  readonly database: Database;
  /** The address of `database`. */
  readonly databaseUrl: string;
  /** RUNLAKE_AGENTS_DATABASE_URL. */
  readonly givenUrl?: string | undefined;
  readonly authorities?: readonly string[] | undefined;
  readonly logger: Logger;
}): Promise<WorkerAccount> {
  const { database, databaseUrl: url, givenUrl, authorities, logger } = options;
  const nothing = async () => undefined;
  if (givenUrl !== undefined) return { url: givenUrl, close: nothing };
  const shared = { database, url, authorities, logger };
  const account = await openLimitedAccount({ ...shared, prefix: 'graphs_of_runlake', schema: 'agents', tables });
  if (account !== undefined) return account;
  logger.warn(
    'graph code reaches Postgres with the account of Runlake: let that account create roles, or set RUNLAKE_AGENTS_DATABASE_URL',
  );
  return { url, close: nothing };
}
