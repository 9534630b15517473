import { randomBytes } from 'node:crypto';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { makeProcessFolder } from '../../infra/embedded/process-identity.ts';
import { workFileError } from '../../infra/errors/work-file-error.ts';

/**
 * Folders for files before their upload: one below `root` for this process, with one subfolder for each attempt. Their
 * content is not needed after an attempt or a crash; the folders of crashed processes are removed when another process
 * starts.
 */
export interface WorkFolders {
  /** Runs `work` with a new folder, and removes the folder afterwards. */
  during<Result>(name: string, work: (folder: string) => Promise<Result>): Promise<Result>;
  close(): Promise<void>;
}

/** @throws WORK_FILE_UNUSABLE if `root` cannot be created, read or written. */
export async function openWorkFolders(root: string): Promise<WorkFolders> {
  const own = await makeProcessFolder(root).catch((cause: unknown) => {
    throw workFileError(root, cause);
  });
  return {
    async during(name, work) {
      const folder = join(own, `${name}-${randomBytes(4).toString('hex')}`);
      await mkdir(folder).catch((cause: unknown) => {
        throw workFileError(root, cause);
      });
      try {
        return await work(folder);
      } finally {
        await rm(folder, { recursive: true, force: true });
      }
    },
    close: () => rm(own, { recursive: true, force: true }),
  };
}
