import { existsSync, realpathSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Config } from '../../../infra/config/settings.ts';
import { fault } from '../../../infra/errors/runlake-error.ts';
import { type AccountSource, openProcessAccounts } from '../../../infra/isolation/process-accounts.ts';
import type { GraphsFile } from '../graphs/graphs-file.ts';

export interface GraphIsolation {
  /** Of the processes that run code of the project. Absent: they have that of Runlake. */
  readonly accounts: AccountSource | undefined;
  /** What graph code has, in words that begin after "graph code has". */
  readonly words: string;
  close(): Promise<void>;
}

/** What in the data folder holds secrets, or data of others. */
const privateNames = ['secret.key', 'postgres.password', 'run.json', 'postgres', 'clickhouse', 'exports'];

/**
 * Decides whether processes that run code of a project get accounts of the operating system of their own, by RUNLAKE_AGENTS_ISOLATION and
 * by a process that tries one.
 *
 * @throws GRAPH_CODE_NOT_ISOLATED where that is required and cannot be had.
 */
export async function openGraphIsolation(
  file: GraphsFile,
  { agentsIsolation, dataDir }: Pick<Config, 'agentsIsolation' | 'dataDir'>,
): Promise<GraphIsolation> {
  const accounts =
    agentsIsolation === 'off'
      ? 'RUNLAKE_AGENTS_ISOLATION is off'
      : await openProcessAccounts({
          readable: pathsOfProject(file),
          closed: privateNames.map((name) => resolve(dataDir, name)).filter((path) => existsSync(path)),
        });
  if (typeof accounts === 'string') {
    if (agentsIsolation === 'required') throw fault('GRAPH_CODE_NOT_ISOLATED', { reason: accounts });
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

/** The project, its packages, and the program that runs it. */
function pathsOfProject({ folder, graphs, auth, app }: GraphsFile): string[] {
  const modules = [...graphs, auth, app].flatMap((module) => (module ? [module.path] : []));
  const program = fileURLToPath(new URL('.', import.meta.url));
  const paths = [folder, join(folder, 'node_modules'), ...modules, program];
  return paths.flatMap((path) => (existsSync(path) ? [realpathSync(path)] : []));
}
