import { execFileSync } from 'node:child_process';
import { appendFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Mounts a disk of its own. Requires root on Linux: see `isLinuxRoot`. */
export function mountDisk(sizeMib: number) {
  const folder = mkdtempSync(join(tmpdir(), 'runlake-disk-'));
  execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${sizeMib}m,mode=711`, 'tmpfs', folder]);
  return {
    folder,
    /** Writes a file until not one byte is free. */
    fill(): void {
      for (let size = 1024 * 1024; size >= 1; ) {
        try {
          appendFileSync(join(folder, 'filler'), Buffer.alloc(size));
        } catch {
          size = Math.floor(size / 2);
        }
      }
    },
    /** Deletes the file. */
    free(): void {
      rmSync(join(folder, 'filler'), { force: true });
    },
    remove(): void {
      execFileSync('umount', ['--lazy', folder]);
      rmSync(folder, { recursive: true });
    },
  };
}
