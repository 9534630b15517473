/**
 * Chooses the account, binaries and folder for the embedded Postgres of a data folder.
 *
 * If Runlake runs as an ordinary user, Postgres runs as that user, from the npm package, in `<data folder>/postgres`.
 * Postgres refuses to run as root. So if Runlake runs as root, Postgres runs as the owner of existing data, otherwise
 * as `nobody`. If that account cannot access the package, the binaries are copied to a shared folder. If it cannot
 * access the data folder, its data go to a new folder in the shared folder, whose path is recorded in `postgres.location`
 * in the data folder.
 */
import { execFileSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { chmodSync, chownSync, existsSync, mkdirSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { runlakeError } from '../../errors/runlake-error.ts';
import { readFileIfThere, writePrivateFile } from '../private-file.ts';
import { type Account, canPass, isOwnFolder, nobody } from './account.ts';
import { linkLibraries, type PostgresBinaries } from './binaries.ts';
import { copyBinaries } from './copy-binaries.ts';

export interface Place {
  readonly account: Account | undefined;
  readonly binaries: string;
  readonly dataFolder: string;
  /** Records the place. Call it after the data have been created, so that later starts use the same folder. */
  remember(): void;
}

const sharedFolders = ['/var/lib/runlake', join(tmpdir(), 'runlake')];

/**
 * @param shared shared folders to try in this order, if the account cannot access the package or the data folder.
 * @throws ENGINE_START_FAILED if the data are missing, or no folder can be accessed.
 */
export function chooseLocation(
  folder: string,
  build: PostgresBinaries,
  shared: readonly string[] = sharedFolders,
): Place {
  const inside = join(folder, 'postgres');
  if (process.getuid?.() !== 0) {
    linkLibraries(build.folder);
    mkdirSync(inside, { recursive: true, mode: 0o700 });
    return { account: undefined, binaries: build.folder, dataFolder: join(inside, 'data'), remember: () => {} };
  }

  const memory = join(folder, 'postgres.location');
  const remembered = readFileIfThere(memory)?.trim();
  if (remembered && !existsSync(join(remembered, 'data'))) {
    throw cannotStart(`its data folder ${remembered}, which is recorded in ${memory}, does not exist`);
  }
  const found = statSync(join(remembered ?? inside, 'data'), { throwIfNoEntry: false });
  const account = found && found.uid !== 0 ? { uid: found.uid, gid: found.gid } : nobody;

  const parent =
    remembered ?? (found || canPass(account, dirname(folder)) ? inside : newLocation(folder, account, shared));
  if (parent === inside) openFolder(folder, account);
  makeFor(account, parent);
  if (!canPass(account, parent)) throw cannotStart(`user ${account.uid} cannot reach ${parent}`);
  return {
    account,
    binaries: reachableBinaries(build, account, shared),
    dataFolder: join(parent, 'data'),
    remember: () => {
      if (parent !== inside && !remembered) writePrivateFile(memory, `${parent}\n`);
    },
  };
}

/** Gives the account search permission on the data folder; it still cannot read its contents. */
function openFolder(folder: string, account: Account): void {
  const { mode, uid } = statSync(folder);
  if (uid !== account.uid && (mode & 0o001) === 0) chmodSync(folder, (mode & 0o777) | 0o011);
}

function makeFor(account: Account, path: string): void {
  mkdirSync(path, { recursive: true, mode: 0o700 });
  if (statSync(path).uid === 0) chownSync(path, account.uid, account.gid);
  if (!isOwnFolder(path, account.uid)) throw cannotStart(`${path} does not belong to user ${account.uid} alone`);
}

/**
 * The name contains a hash of the data folder and a random part, so that a recreated data folder does not get the old data.
 */
function newLocation(folder: string, account: Account, shared: readonly string[]): string {
  const hash = createHash('sha256').update(folder).digest('hex').slice(0, 12);
  return join(sharedFolder(account, shared), `data-${hash}-${randomBytes(4).toString('hex')}`);
}

function reachableBinaries(build: PostgresBinaries, account: Account, shared: readonly string[]): string {
  if (runsAs(account, build.folder)) return build.folder;
  try {
    linkLibraries(build.folder);
    if (runsAs(account, build.folder)) return build.folder;
  } catch {
    // The package is read-only, so the links are created in the copy.
  }
  const copy = copyBinaries(build, sharedFolder(account, shared));
  if (!runsAs(account, copy)) throw cannotStart(`user ${account.uid} cannot run ${copy}/bin/postgres`);
  return copy;
}

function runsAs(account: Account, binaries: string): boolean {
  try {
    execFileSync(join(binaries, 'bin', 'postgres'), ['--version'], { ...account, cwd: '/', env: {}, stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

function sharedFolder(account: Account, shared: readonly string[]): string {
  for (const path of shared) {
    try {
      if (mkdirSync(path, { recursive: true, mode: 0o755 }) !== undefined) chmodSync(path, 0o755);
      if (isOwnFolder(path, 0) && canPass(account, path)) return path;
    } catch {
      // Read-only, a file, or not accessible: try the next one.
    }
  }
  throw cannotStart(
    `Postgres cannot run as root, and user ${account.uid} cannot access any of ${shared.join(', ')}; ` +
      'start Runlake as another user or set RUNLAKE_DATABASE_URL',
  );
}

const cannotStart = (reason: string) => runlakeError('ENGINE_START_FAILED', { engine: 'Postgres', reason });
