/** The caches of packages, one for each workspace. Builds write to them, so what they contain is not trusted. */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { ProcessAccount } from '../../../infra/isolation/process-accounts.ts';
import { deleteTree, giveTree, measureTree } from '../../../infra/isolation/untrusted-tree.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';

/** The cache of a workspace is deleted when it is larger. */
const maxCacheBytes = 1024 ** 3;

/** The cache that a build uses. */
export interface PackageCache {
  /** Folder of the cache; undefined if another build of the workspace uses it. */
  readonly folder: string | undefined;
  /** Variables of the commands of the build. */
  readonly environment: Readonly<Record<string, string>>;
  /** Must be called when no process of the build is left, because only then the next build may get the cache. */
  release(): Promise<void>;
}

/**
 * Workspaces share no cache, because a build could store packages in it that are not those of the registry. A second
 * build at the same time gets no cache.
 */
export class PackageCaches {
  readonly #inUse = new Set<string>();
  readonly #logger: Logger;

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  /** Opens the cache of a workspace for a build. @param root folder of all caches. */
  async open(root: string, workspaceId: string, account: ProcessAccount | undefined): Promise<PackageCache> {
    if (this.#inUse.has(workspaceId)) return { folder: undefined, environment: {}, release: async () => undefined };
    this.#inUse.add(workspaceId);
    const folder = join(root, workspaceId);
    try {
      await mkdir(folder, { recursive: true, mode: 0o700 });
      if (account) await this.#give(folder, account);
    } catch (error) {
      this.#inUse.delete(workspaceId);
      throw error;
    }
    return {
      folder,
      environment: { npm_config_cache: join(folder, 'npm'), YARN_CACHE_FOLDER: join(folder, 'yarn') },
      release: async () => {
        try {
          if ((await measureTree(folder)) > maxCacheBytes) await deleteTree(folder);
        } catch (err) {
          this.#logger.warn({ err, folder }, 'package cache not checked');
        } finally {
          this.#inUse.delete(workspaceId);
        }
      },
    };
  }

  /** Deletes the cache of a workspace, unless a build uses it. Never rejects. */
  async delete(root: string, workspaceId: string): Promise<void> {
    if (this.#inUse.has(workspaceId)) return;
    this.#inUse.add(workspaceId);
    const folder = join(root, workspaceId);
    await deleteTree(folder)
      .catch((err: unknown) => this.#logger.warn({ err, folder }, 'package cache not deleted; retrying'))
      .finally(() => this.#inUse.delete(workspaceId));
  }

  /** Gives a cache to an account. One that contains files of others, or was given only in part, begins empty. */
  async #give(folder: string, account: ProcessAccount): Promise<void> {
    try {
      await giveTree(folder, account);
    } catch (err) {
      this.#logger.warn({ err, folder }, 'package cache deleted, because it could not be given to a build');
      await deleteTree(folder);
      await mkdir(folder, { mode: 0o700 });
      await giveTree(folder, account);
    }
  }
}
