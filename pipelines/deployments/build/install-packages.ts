import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { isSystemError } from '../../../infra/embedded/private-file.ts';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';

/** A command that installs packages, by the lock file of the package manager. */
interface LockFile {
  readonly file: string;
  readonly program: string;
  readonly args: readonly string[];
}

const lockFiles: readonly LockFile[] = [
  { file: 'pnpm-lock.yaml', program: 'pnpm', args: ['install', '--frozen-lockfile', '--reporter=append-only'] },
  { file: 'yarn.lock', program: 'yarn', args: ['install', '--frozen-lockfile', '--non-interactive'] },
  { file: 'package-lock.json', program: 'npm', args: npmArguments('ci') },
  { file: 'npm-shrinkwrap.json', program: 'npm', args: npmArguments('ci') },
];

function npmArguments(command: 'ci' | 'install'): string[] {
  return [command, '--no-audit', '--no-fund', '--no-update-notifier', '--prefer-offline'];
}

export interface InstallStep {
  readonly program: string;
  readonly args: readonly string[];
  /** Folder in which the command runs. */
  readonly folder: string;
}

/**
 * Chooses the command that installs the packages of a source: `installCommand` in the root; otherwise by the lock file
 * in the folder of the langgraph.json or else in the root; without a lock file, `npm install` if there is a package.json.
 *
 * @returns undefined if the source has no packages.
 */
export function chooseInstall(
  root: string,
  configFolder: string,
  installCommand: string | null | undefined,
): InstallStep | undefined {
  if (installCommand) return { program: 'sh', args: ['-c', installCommand], folder: root };
  for (const folder of new Set([configFolder, root])) {
    const lock = lockFiles.find(({ file }) => existsSync(join(folder, file)));
    if (lock)
      return { program: lock.program, args: isBerry(folder, lock) ? ['install', '--immutable'] : lock.args, folder };
  }
  for (const folder of new Set([configFolder, root])) {
    if (existsSync(join(folder, 'package.json'))) return { program: 'npm', args: npmArguments('install'), folder };
  }
  return undefined;
}

/** Yarn from version 2 on has other options. Its lock files begin with a field `__metadata`. */
function isBerry(folder: string, { file }: LockFile): boolean {
  if (file !== 'yarn.lock') return false;
  try {
    return /^__metadata:/m.test(readFileSync(join(folder, file), 'utf8'));
  } catch (error) {
    if (isSystemError(error, 'EISDIR')) throw runlakeError('BUILD_FAILED', { reason: 'yarn.lock is a folder' });
    throw error;
  }
}
