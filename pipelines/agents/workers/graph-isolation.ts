import { existsSync, realpathSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Config } from '../../../infra/config/settings.ts';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { type AccountSource, openProcessAccounts } from '../../../infra/isolation/process-accounts.ts';
import type { GraphsFile } from '../graphs/graphs-file.ts';

export interface GraphIsolation {
  /**
   * Operating-system accounts for processes that run project code. If absent, they run under the account of Runlake.
   */
  readonly accounts: AccountSource | undefined;
  /** Describes the isolation. The text completes the sentence "graph code has …". */
  readonly words: string;
  close(): Promise<void>;
}

/** Entries of the data folder that contain secrets or data of other tenants. */
const privateEntries = ['secret.key', 'postgres.password', 'run.json', 'postgres', 'clickhouse', 'exports'];

/**
 * Decides whether each process that runs project code gets an operating-system account of its own. The decision depends
 * on RUNLAKE_AGENTS_ISOLATION and on whether a trial process is isolated.
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
          readable: listReadablePaths(file),
          closed: privateEntries.map((name) => resolve(dataDir, name)).filter((path) => existsSync(path)),
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
  const modules = [...graphs, auth, app].flatMap((module) => (module ? [module.path] : []));
  const program = fileURLToPath(new URL('.', import.meta.url));
  const paths = [folder, join(folder, 'node_modules'), ...modules, program];
  return paths.flatMap((path) => (existsSync(path) ? [realpathSync(path)] : []));
}
