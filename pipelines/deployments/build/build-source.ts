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
import { mkdir, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { OpenedOnce } from '../../../infra/cache/opened-once.ts';
import type { Config } from '../../../infra/config/settings.ts';
import { lockFolder } from '../../../infra/embedded/data-folder.ts';
import { writePrivateFile } from '../../../infra/embedded/private-file.ts';
import { createProcessFolder } from '../../../infra/embedded/process-identity.ts';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { openProcessAccounts, type ProcessAccounts } from '../../../infra/isolation/process-accounts.ts';
import { deleteTree } from '../../../infra/isolation/untrusted-tree.ts';
import type { Database } from '../../../infra/postgres/database.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import { raceWithAbort } from '../../../infra/timeouts/with-timeout.ts';
import { listPrivatePaths } from '../../agents/workers/front/graph-isolation.ts';
import { parseUuid } from '../../ingest/run-event/uuid.ts';
import type { SourceDescription } from '../deployment.ts';
import type { NeededFolders } from '../replicas.ts';
import type { SourceStore } from '../source-store.ts';
import { BuildLimit, createBuildError } from './build-folder.ts';
import { fetchSource, getConfigPath, installPackages, type RunningBuild } from './build-steps.ts';
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

export interface BuildRequest extends SourceDescription {
  readonly revisionId: string;
  readonly deploymentId: string;
  readonly workspaceId: string;
  /** Token for a private repository. */
  readonly gitToken?: string | undefined;
}

export interface Build {
  /** Path of the langgraph.json. */
  readonly agentsFile: string;
  /** Commit of a git source. */
  readonly commit?: string | undefined;
}

export interface BuildOptions {
  readonly signal: AbortSignal;
  readonly onLog: (text: string) => void;
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

interface Folders {
  readonly builds: string;
  readonly caches: string;
  unlock(): void;
}

/**
 * Creates the folders of builds, and locks them for this process: hosts share no folder. Other users can pass through
 * them, but cannot list them.
 *
 * @throws DATA_FOLDER_IN_USE if another host uses the same data folder
 */
function openFolders(dataDir: string): Folders {
  const data = resolve(dataDir);
  const folders = { builds: join(data, 'deployments', 'builds'), caches: join(data, 'deployments', 'caches') };
  for (const folder of Object.values(folders)) mkdirSync(folder, { recursive: true, mode: 0o711 });
  if (process.getuid?.() === 0) {
    for (const folder of [data, dirname(folders.builds), folders.builds, folders.caches])
      chmodSync(folder, statSync(folder).mode | 0o011);
  }
  const lock = lockFolder(folders.builds);
  if (typeof lock === 'number') throw runlakeError('DATA_FOLDER_IN_USE', { folder: folders.builds, pid: lock });
  return { ...folders, unlock: lock };
}

export function createBuilder(deps: BuildDeps): Builder {
  const { config, logger } = deps;
  let folders: Folders | undefined;
  /** The folders are created for the first build, because most installations have no deployments. */
  const getFolders = () => {
    folders ??= openFolders(config.dataDir);
    return folders;
  };
  const accounts = new OpenedOnce(openAccounts);
  const inProgress = new Map<string, Promise<Build>>();
  const packageCaches = new PackageCaches(logger);
  let freeSlots = config.deploymentsBuildsAtOnce;
  const waiting = new Set<() => void>();

  /** Waits for a slot. Builds for revisions and for replicas that are started again share the slots. */
  async function takeSlot(signal: AbortSignal): Promise<void> {
    while (freeSlots === 0) {
      const freed = new Promise<void>((resolve) => waiting.add(resolve));
      await raceWithAbort(freed, signal);
    }
    freeSlots -= 1;
  }

  function releaseSlot(): void {
    freeSlots += 1;
    for (const wake of waiting) wake();
    waiting.clear();
  }

  async function openAccounts(): Promise<ProcessAccounts | undefined> {
    if (config.agentsIsolation === 'off') return undefined;
    const opened = await openProcessAccounts({ readablePaths: [], closed: listPrivatePaths(config.dataDir), logger });
    if (typeof opened !== 'string') return opened;
    if (config.agentsIsolation === 'required') throw runlakeError('GRAPH_CODE_NOT_ISOLATED', { reason: opened });
    logger.warn({ reason: opened }, 'builds run under the user id of Runlake, and are as trusted as the operator');
    return undefined;
  }

  /** Without isolation, a build can read everything that Runlake can. @throws BUILD_FAILED */
  async function requireOperatorWorkspace(workspaceId: string): Promise<void> {
    const found = await deps.database.query(
      `SELECT FROM workspaces WHERE id = $1
         AND organization_id = (SELECT id FROM organizations ORDER BY created_at, id LIMIT 1)`,
      [workspaceId],
    );
    if (found.length > 0) return;
    const reason = 'This installation cannot isolate builds, so it builds only for the organisation of its operator';
    throw runlakeError('BUILD_FAILED', { reason });
  }

  async function make(request: BuildRequest, options: BuildOptions): Promise<Build> {
    const folder = join(getFolders().builds, request.revisionId);
    const done = await readMarker(folder);
    if (done !== undefined) return done;
    await takeSlot(options.signal);
    try {
      return await makeInSlot(request, folder, options);
    } finally {
      releaseSlot();
    }
  }

  async function makeInSlot(request: BuildRequest, folder: string, { signal, onLog }: BuildOptions): Promise<Build> {
    const account = (await accounts.get())?.take();
    if (account === undefined) await requireOperatorWorkspace(request.workspaceId);
    const ownHome =
      account === undefined ? await createProcessFolder(tmpdir(), { prefix: 'runlake-build-', logger }) : undefined;
    const limit = new BuildLimit(config, { signal, account });
    const home = ownHome ?? String(account?.home);
    const running: RunningBuild = { request, folder, account, home, signal: limit.signal, onLog };
    let cache: PackageCache | undefined;
    const endProcesses = async () => account === undefined || (await account.release());
    try {
      await deleteTree(folder);
      await mkdir(folder, { mode: 0o755 });
      await limit.include(folder);
      await limit.include(home);
      const commit = await fetchSource(running, deps);
      cache = await packageCaches.open(getFolders().caches, request.workspaceId, account);
      if (cache.folder !== undefined) await limit.include(cache.folder);
      await installPackages(running, cache);
      await limit.check();
      if (!(await endProcesses())) throw createBuildError('A process of the build could not be ended');
      const agentsFile = await checkBuild(folder, getConfigPath(request));
      const build = { agentsFile, ...(commit !== undefined && { commit }) };
      writePrivateFile(getMarkerPath(folder), JSON.stringify(build));
      return build;
    } catch (error) {
      if (await endProcesses()) await remove(folder);
      throw limit.explain(error);
    } finally {
      limit.end();
      // A cache that a process can still change is not given to another build.
      if (await endProcesses()) await cache?.release();
      if (ownHome !== undefined) await remove(ownHome);
    }
  }

  async function remove(folder: string): Promise<void> {
    await deleteTree(folder).catch((err: unknown) => logger.warn({ err, folder }, 'files of a build not deleted'));
  }

  return {
    async build(request, options) {
      // Replicas of the same revision share its build.
      const running = inProgress.get(request.revisionId);
      if (running !== undefined) return running;
      const building = make(request, options).finally(() => inProgress.delete(request.revisionId));
      inProgress.set(request.revisionId, building);
      return building;
    },
    async deleteExcept(readNeeded) {
      if (!existsSync(join(resolve(config.dataDir), 'deployments', 'builds'))) return;
      const { builds, caches } = getFolders();
      const ids = new Set((await readdir(builds)).map((name) => name.replace(/\.json$/, '')));
      const cachedIds = await readdir(caches);
      const needed = await readNeeded();
      for (const id of cachedIds) if (!needed.workspaces.has(id)) await packageCaches.delete(caches, id);
      for (const id of ids) {
        if (parseUuid(id) !== id || needed.builds.has(id) || inProgress.has(id)) continue;
        const folder = join(builds, id);
        // The marker goes first, so that a folder without some of its files never counts as complete.
        await rm(getMarkerPath(folder), { force: true })
          .then(() => deleteTree(folder))
          .catch((err: unknown) => logger.warn({ err, folder }, 'build not deleted; retrying'));
      }
    },
    async close() {
      await (await accounts.peek())?.close();
      folders?.unlock();
    },
  };
}

const getMarkerPath = (folder: string) => `${folder}.json`;

async function readMarker(folder: string): Promise<Build | undefined> {
  const text = await readFile(getMarkerPath(folder), 'utf8').catch(() => undefined);
  if (text === undefined) return undefined;
  const build = JSON.parse(text) as Build;
  return existsSync(build.agentsFile) ? build : undefined;
}
