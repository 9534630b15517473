import { randomBytes } from 'node:crypto';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { makeProcessFolder } from '../../infra/embedded/process-folder.ts';
import { workFileFault } from '../../infra/errors/work-file-fault.ts';

/**
 * Folders for files on their way to a bucket: one below `root` for this process, one in it for each attempt. Nothing in them is
 * needed again after an end or a crash; what processes that died have left is removed when another one starts.
 */
export interface WorkFolders {
  /** Does `work` with a new folder of its own, which is removed afterwards. */
  during<Result>(name: string, work: (folder: string) => Promise<Result>): Promise<Result>;
  close(): Promise<void>;
}

/** @throws WORK_FILE_UNUSABLE where `root` cannot be made, read or written. */
export async function openWorkFolders(root: string): Promise<WorkFolders> {
  const own = await makeProcessFolder(root).catch((cause: unknown) => {
    throw workFileFault(root, cause);
  });
  return {
    async during(name, work) {
      const folder = join(own, `${name}-${randomBytes(4).toString('hex')}`);
      await mkdir(folder).catch((cause: unknown) => {
        throw workFileFault(root, cause);
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
