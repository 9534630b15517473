/**
 * Builds sources on this host.
 *
 * Invariant: a build folder that is returned is complete, and no process can change it any more.
 *
 *   1. If the marker of the revision exists, its folder is complete; it is returned.
 *   2. Wait for a free slot; the folder of an earlier, interrupted build is deleted.
 *   3. Fetch the source, install its packages, run its build command, each under the account of this build, with a home
 *      of its own, within the limits of time and disk space.
 *   4. Release the account, which kills all its processes. Check the langgraph.json.
 *   5. Write the marker. If the build has failed, its folder is deleted, also only after the account is released: until
 *      then, a process could lead Runlake to other files.
 *
 * A host that has no folder of a revision, for example after the loss of its disk, builds it again.
 */
import { chmodSync, existsSync, mkdirSync, statSync } from 'node:fs';
import { mkdir, readdir, readFile, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, resolve, sep } from 'node:path';
import { OpenedOnce } from '../../../infra/cache/opened-once.ts';
import type { Config } from '../../../infra/config/settings.ts';
import { lockSharedFolder } from '../../../infra/embedded/data-folder.ts';
import { writePrivateFile } from '../../../infra/embedded/private-file.ts';
import { createProcessFolder } from '../../../infra/embedded/process-identity.ts';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import {
  openProcessAccounts,
  type ProcessAccount,
  type ProcessAccounts,
} from '../../../infra/isolation/process-accounts.ts';
import { deleteTree } from '../../../infra/isolation/untrusted-tree.ts';
import type { Database } from '../../../infra/postgres/database.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import { raceWithAbort } from '../../../infra/timeouts/with-timeout.ts';
import { listPrivatePaths } from '../../agents/workers/front/graph-isolation.ts';
import { parseUuid } from '../../ingest/run-event/uuid.ts';
import type { NeededFolders } from '../replicas.ts';
import type { SourceStore } from '../source-store.ts';
import { BuildLimit, createBuildError } from './build-folder.ts';
import {
  type BuildOptions,
  type BuildRequest,
  fetchSource,
  getConfigPath,
  installPackages,
  type RunningBuild,
} from './build-steps.ts';
import { checkBuild } from './check-build.ts';
import { type PackageCache, PackageCaches } from './package-caches.ts';

export interface BuildDeps {
  readonly database: Database;
  readonly logger: Logger;
  readonly sourceStore: SourceStore;
  readonly config: Pick<
    Config,
    | 'dataDir'
    | 'agentsIsolation'
    | 'allowPrivateEndpoints'
    | 'deploymentsMaxSourceBytes'
    | 'deploymentsBuildTimeoutMs'
    | 'deploymentsBuildsAtOnce'
    | 'deploymentsMaxBuildBytes'
  >;
}

export interface Build {
  /** Path of the langgraph.json. */
  readonly agentsFile: string;
  /** Commit of a git source. */
  readonly commit?: string | undefined;
}

export interface Builder {
  /** Builds a revision, or returns its build. @throws BUILD_FAILED, the reason of the signal, errors of the stores */
  build(request: BuildRequest, options: BuildOptions): Promise<Build>;
  /**
   * Deletes all builds and package caches except those that `readNeeded` returns. First lists them, then calls it, so that a
   * build that is made meanwhile stays. A folder that cannot be deleted does not keep the others.
   */
  deleteExcept(readNeeded: () => Promise<NeededFolders>): Promise<void>;
  close(): Promise<void>;
}

const getBuildsFolder = ({ dataDir }: Pick<Config, 'dataDir'>) => join(resolve(dataDir), 'deployments', 'builds');

interface Folders {
  readonly builds: string;
  readonly caches: string;
  unlock(): Promise<void>;
}

/**
 * Creates the folders of builds, and locks them for this process: hosts share no folder. Other users can pass through
 * them, but cannot list them.
 *
 * @throws DATA_FOLDER_IN_USE if another host uses the same data folder
 */
async function openFolders(config: Pick<Config, 'dataDir'>): Promise<Folders> {
  const builds = getBuildsFolder(config);
  const data = resolve(config.dataDir);
  const folders = { builds, caches: join(data, 'deployments', 'caches') };
  for (const folder of Object.values(folders)) mkdirSync(folder, { recursive: true, mode: 0o711 });
  if (process.getuid?.() === 0) {
    for (const folder of [data, dirname(folders.builds), folders.builds, folders.caches])
      chmodSync(folder, statSync(folder).mode | 0o011);
  }
  return { ...folders, unlock: await lockSharedFolder(folders.builds) };
}

/** Builds the sources of a host. */
export class SourceBuilder implements Builder {
  readonly #deps: BuildDeps;
  readonly #accounts: OpenedOnce<ProcessAccounts | undefined>;
  readonly #inProgress = new Map<string, Promise<Build>>();
  readonly #packageCaches: PackageCaches;
  readonly #waiting = new Set<() => void>();
  #freeSlots: number;
  /** Created for the first build, because most installations have no deployments. */
  readonly #folders: OpenedOnce<Folders>;

  constructor(deps: BuildDeps) {
    this.#deps = deps;
    this.#folders = new OpenedOnce(() => openFolders(deps.config));
    this.#accounts = new OpenedOnce(() => openAccounts(deps));
    this.#packageCaches = new PackageCaches(deps.logger);
    this.#freeSlots = deps.config.deploymentsBuildsAtOnce;
  }

  async build(request: BuildRequest, options: BuildOptions): Promise<Build> {
    // Replicas of the same revision share its build.
    const running = this.#inProgress.get(request.revisionId);
    if (running !== undefined) return running;
    const building = this.#make(request, options).finally(() => this.#inProgress.delete(request.revisionId));
    this.#inProgress.set(request.revisionId, building);
    return building;
  }

  async deleteExcept(readNeeded: () => Promise<NeededFolders>): Promise<void> {
    if (!existsSync(getBuildsFolder(this.#deps.config))) return;
    const { builds, caches } = await this.#folders.get();
    const ids = new Set((await readdir(builds)).map((name) => name.replace(/\.json$/, '')));
    const cachedIds = await readdir(caches);
    const needed = await readNeeded();
    for (const id of cachedIds) if (!needed.workspaces.has(id)) await this.#packageCaches.delete(caches, id);
    for (const id of ids) {
      if (parseUuid(id) !== id || needed.builds.has(id) || this.#inProgress.has(id)) continue;
      const folder = join(builds, id);
      // The marker goes first, so that a folder without some of its files never counts as complete.
      await rm(getMarkerPath(folder), { force: true })
        .then(() => deleteTree(folder))
        .catch((err: unknown) => this.#deps.logger.warn({ err, folder }, 'build not deleted; retrying'));
    }
  }

  async close(): Promise<void> {
    await (await this.#accounts.peek())?.close();
    await (await this.#folders.peek())?.unlock();
  }

  async #make(request: BuildRequest, options: BuildOptions): Promise<Build> {
    const { builds } = await this.#folders.get();
    const folder = join(builds, request.revisionId);
    const done = await readMarker(folder);
    if (done !== undefined) return done;
    // Builds for revisions and for replicas that are started again share the slots.
    while (this.#freeSlots === 0) {
      const freed = new Promise<void>((resolve) => this.#waiting.add(resolve));
      await raceWithAbort(freed, options.signal);
    }
    this.#freeSlots -= 1;
    try {
      return await this.#makeInSlot(request, folder, options);
    } finally {
      this.#freeSlots += 1;
      for (const wake of this.#waiting) wake();
      this.#waiting.clear();
    }
  }

  async #makeInSlot(request: BuildRequest, folder: string, { signal, onLog }: BuildOptions): Promise<Build> {
    const { config } = this.#deps;
    const { account, home, release } = await this.#openHome(request.workspaceId);
    const limit = new BuildLimit(config, { signal, account });
    const running: RunningBuild = { request, folder, account, home, signal: limit.signal, onLog };
    let cache: PackageCache | undefined;
    try {
      await deleteTree(folder);
      await mkdir(folder, { mode: 0o755 });
      await limit.include(folder);
      await limit.include(home);
      const commit = await fetchSource(running, this.#deps);
      cache = await this.#packageCaches.open((await this.#folders.get()).caches, request.workspaceId, account);
      if (cache.folder !== undefined) await limit.include(cache.folder);
      await installPackages(running, cache);
      await limit.check();
      if (!(await release())) throw createBuildError('A process of the build could not be ended');
      const agentsFile = await checkBuild(folder, getConfigPath(request));
      const build = { agentsFile, ...(commit !== undefined && { commit }) };
      writePrivateFile(getMarkerPath(folder), JSON.stringify(build));
      return build;
    } catch (error) {
      if (await release()) await this.#remove(folder);
      throw limit.explain(error);
    } finally {
      limit.end();
      // A cache that a process can still change is not given to another build.
      if (await release()) await cache?.release();
    }
  }

  /** @throws BUILD_FAILED if builds are not isolated, and the workspace is not the operator's. */
  async #openHome(workspaceId: string): Promise<BuildHome> {
    const { database, logger } = this.#deps;
    const account = (await this.#accounts.get())?.take();
    if (account !== undefined) return { account, home: account.home, release: () => account.release() };
    await requireOperatorWorkspace(database, workspaceId);
    const home = await createProcessFolder(tmpdir(), { prefix: 'runlake-build-', logger });
    const release = async () => {
      await this.#remove(home);
      return true;
    };
    return { account: undefined, home, release };
  }

  async #remove(folder: string): Promise<void> {
    const { logger } = this.#deps;
    await deleteTree(folder).catch((err: unknown) => logger.warn({ err, folder }, 'files of a build not deleted'));
  }
}

/** Where the processes of a build run: under an account with its home, or only in a folder if builds are not isolated. */
interface BuildHome {
  readonly account: ProcessAccount | undefined;
  readonly home: string;
  /** Ends the processes of the account, and deletes the folder. @returns false if a process could not be ended */
  readonly release: () => Promise<boolean>;
}

async function openAccounts({ config, logger }: BuildDeps): Promise<ProcessAccounts | undefined> {
  if (config.agentsIsolation === 'off') return undefined;
  const opened = await openProcessAccounts({ readablePaths: [], closed: listPrivatePaths(config.dataDir), logger });
  if (typeof opened !== 'string') return opened;
  if (config.agentsIsolation === 'required') throw runlakeError('GRAPH_CODE_NOT_ISOLATED', { reason: opened });
  logger.warn({ reason: opened }, 'builds run under the user id of Runlake, and are as trusted as the operator');
  return undefined;
}

/** Without isolation, a build can read everything that Runlake can. @throws BUILD_FAILED */
async function requireOperatorWorkspace(database: Database, workspaceId: string): Promise<void> {
  const found = await database.query(
    `SELECT FROM workspaces WHERE id = $1
       AND organization_id = (SELECT id FROM organizations ORDER BY created_at, id LIMIT 1)`,
    [workspaceId],
  );
  if (found.length > 0) return;
  const reason = 'This installation cannot isolate builds, so it builds only for the organisation of its operator';
  throw runlakeError('BUILD_FAILED', { reason });
}

const getMarkerPath = (folder: string) => `${folder}.json`;

async function readMarker(folder: string): Promise<Build | undefined> {
  const text = await readFile(getMarkerPath(folder), 'utf8').catch(() => undefined);
  if (text === undefined) return undefined;
  const build = JSON.parse(text) as Build;
  // A marker in a copy of the data folder names the build of the original.
  const root = await realpath(folder).catch(() => undefined);
  const isOwn = root !== undefined && build.agentsFile.startsWith(join(root, sep));
  return isOwn && existsSync(build.agentsFile) ? build : undefined;
}
