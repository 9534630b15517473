/** The steps of a build that run in its folder, under its account (step 3 of `build-source.ts`). */
import { dirname, resolve } from 'node:path';
import { buildCommandEnvironment } from '../../../infra/config/graph-environment.ts';
import type { Config } from '../../../infra/config/settings.ts';
import type { ProcessAccount } from '../../../infra/isolation/process-accounts.ts';
import { giveTree } from '../../../infra/isolation/untrusted-tree.ts';
import type { Database } from '../../../infra/postgres/database.ts';
import type { SourceDescription } from '../deployment.ts';
import type { SourceStore } from '../source-store.ts';
import { readSource } from '../uploads.ts';
import { checkFolder } from './build-folder.ts';
import { fetchGit } from './fetch-git.ts';
import { chooseInstall } from './install-packages.ts';
import type { PackageCache } from './package-caches.ts';
import { runCommand } from './run-command.ts';
import { unpackTarball } from './unpack-tarball.ts';

export interface BuildRequest extends SourceDescription {
  readonly revisionId: string;
  readonly deploymentId: string;
  readonly workspaceId: string;
  /** Token for a private repository. */
  readonly gitToken?: string | undefined;
}

export interface BuildOptions {
  readonly signal: AbortSignal;
  readonly onLog: (text: string) => void;
}

interface SourceDeps {
  readonly database: Database;
  readonly sourceStore: SourceStore;
  readonly config: Pick<Config, 'allowPrivateEndpoints' | 'deploymentsMaxSourceBytes'>;
}

/** The unpacked source may be larger than the tarball by this factor. */
const maxUnpackFactor = 10;
const maxEntries = 50_000;

export interface RunningBuild extends BuildOptions {
  readonly request: BuildRequest;
  /** Folder of the source. */
  readonly folder: string;
  /** Undefined without isolation. */
  readonly account: ProcessAccount | undefined;
  /** Folder for what the build writes outside of its source. */
  readonly home: string;
}

/** Path of the langgraph.json in the source. */
export const getConfigPath = ({ sourceRevisionConfig }: BuildRequest) =>
  sourceRevisionConfig.langgraph_config_path ?? 'langgraph.json';

/**
 * Writes the source to the folder of the build.
 *
 * @returns the commit of a git source.
 * @throws BUILD_FAILED; the reason of the signal; errors of the stores
 */
export async function fetchSource(
  { request, folder, account, home, signal, onLog }: RunningBuild,
  deps: SourceDeps,
): Promise<string | undefined> {
  const { source, deploymentId, sourceConfig, sourceRevisionConfig, gitToken } = request;
  const { config } = deps;
  if (source === 'internal_source') {
    onLog('Unpacking the uploaded source');
    const tarball = await readSource(deps, deploymentId, String(sourceRevisionConfig.source_tarball_path), signal);
    const maxBytes = config.deploymentsMaxSourceBytes * maxUnpackFactor;
    await unpackTarball(tarball, folder, { maxBytes, maxEntries, signal });
    if (account) await giveTree(folder, account);
    return undefined;
  }
  if (account) await giveTree(folder, account);
  const url = String(sourceConfig.repo_url);
  const reference = String(sourceRevisionConfig.repo_ref);
  onLog(`Fetching ${reference} of ${url}`);
  const commit = await fetchGit(
    { url, reference, commit: sourceRevisionConfig.repo_commit_sha ?? undefined, token: gitToken },
    {
      ...{ folder, account, signal, onOutput: onLog, environment: buildCommandEnvironment(home) },
      allowPrivate: config.allowPrivateEndpoints,
    },
  );
  onLog(`Commit ${commit}`);
  return commit;
}

/** Installs the packages of the source, and runs its build command. @throws BUILD_FAILED; the reason of the signal */
export async function installPackages(
  { request, folder, account, home, signal, onLog }: RunningBuild,
  cache: PackageCache,
): Promise<void> {
  const { install_command, build_command } = request.sourceConfig;
  const configFolder = dirname(resolve(folder, getConfigPath(request)));
  const install = await chooseInstall(folder, configFolder, install_command);
  // The agent server finds packages in node_modules, which newer versions of Yarn do not create by default.
  const environment = {
    ...buildCommandEnvironment(home),
    CI: 'true',
    YARN_NODE_LINKER: 'node-modules',
    ...cache.environment,
  };
  for (const step of [install, build_command && { program: 'sh', args: ['-c', build_command], folder: configFolder }]) {
    if (!step) continue;
    onLog(`$ ${step.program === 'sh' ? step.args[1] : [step.program, ...step.args].join(' ')}`);
    await checkFolder(folder, step.folder);
    await runCommand({ ...step, root: folder, environment, account }, { signal, onOutput: onLog });
  }
}
