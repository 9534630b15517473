import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const packages = fileURLToPath(new URL('../node_modules', import.meta.url));

/**
 * Installs the packages of a folder with a lock file, once for each state of the lock file, and returns the folder of
 * the installation. Other packages are resolved from the repository. It installs into a folder of its own and then
 * renames it, so that suites can call this at the same time.
 *
 * @param source the folder with `package.json`, `package-lock.json` and `.npmrc`.
 */
export async function installLocked(source: string, name: string): Promise<string> {
  const lock = readFileSync(join(source, 'package-lock.json'));
  const hash = createHash('sha256').update(lock).update(packages).digest('hex').slice(0, 16);
  const root = join(tmpdir(), `runlake-${name}-${hash}`);
  const folder = join(root, 'library');
  if (existsSync(folder)) return folder;
  const fresh = mkdtempSync(`${root}-`);
  mkdirSync(join(fresh, 'library'));
  symlinkSync(packages, join(fresh, 'node_modules'));
  for (const file of ['package.json', 'package-lock.json', '.npmrc'])
    cpSync(join(source, file), join(fresh, 'library', file));
  // Some programs run with another release of Node than that of the tests.
  const words = [
    'ci',
    '--engine-strict=false',
    '--no-audit',
    '--no-fund',
    '--ignore-scripts',
    '--prefer-offline',
    '--loglevel=error',
  ];
  await promisify(execFile)('npm', words, { cwd: join(fresh, 'library') });
  try {
    renameSync(fresh, root);
  } catch (error) {
    rmSync(fresh, { recursive: true, force: true });
    if (!existsSync(folder)) throw error;
  }
  return folder;
}
