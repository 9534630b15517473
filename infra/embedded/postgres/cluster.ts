/**
 * Chooses the account, the binaries and the folder for the embedded Postgres of a data folder.
 *
 * If Runlake runs as an ordinary user, Postgres runs as the same user, from the npm package, with its data in `<data
 * folder>/postgres`. Postgres refuses to run as root. If Runlake runs as root, Postgres therefore runs as the owner of
 * the existing data or, if there are none, as `nobody`. If that account cannot access the package, the binaries are
 * copied to a shared folder. If that account cannot access the data folder, the data are stored in a new folder in the
 * shared folder. The file `postgres.location` in the data folder then contains the path of the new folder.
 */
import { execFile, execFileSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import {
  chmodSync,
  chownSync,
  existsSync,
  lchownSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { runlakeError } from '../../errors/runlake-error.ts';
import { isSystemError, readFileIfExists, writePrivateFile } from '../private-file.ts';
import { copyBinaries, linkLibraries, type PostgresBinaries } from './binaries.ts';

/** The account, the binaries and the folder that a cluster uses. */
export interface ClusterLocation {
  readonly account: Account | undefined;
  readonly binaries: string;
  readonly dataFolder: string;
  /**
   * Records the location. Must be called after the data have been created, so that later starts use the same folder.
   */
  record(): void;
}

const sharedFolders = ['/var/lib/runlake', join(tmpdir(), 'runlake')];

/**
 * Chooses the location of a cluster.
 *
 * @param shared shared folders, which are tried in this order if the account cannot access the package or the data
 *   folder.
 * @throws ENGINE_START_FAILED if the data are missing or no folder can be accessed.
 */
export function chooseLocation(
  folder: string,
  build: PostgresBinaries,
  shared: readonly string[] = sharedFolders,
): ClusterLocation {
  const embeddedFolder = join(folder, 'postgres');
  if (process.getuid?.() !== 0) {
    linkLibraries(build.folder);
    mkdirSync(embeddedFolder, { recursive: true, mode: 0o700 });
    return { account: undefined, binaries: build.folder, dataFolder: join(embeddedFolder, 'data'), record: () => {} };
  }

  const locationFile = getLocationFile(folder);
  const recordedFolder = readFileIfExists(locationFile)?.trim();
  if (recordedFolder && !existsSync(join(recordedFolder, 'data'))) {
    throw createStartError(
      `its data folder ${recordedFolder}, which is recorded in ${locationFile}, does not exist; ` +
        'restore it from a backup, or write the path of the restored folder to that file',
    );
  }
  const recordedHash = recordedFolder && locationPattern.exec(recordedFolder)?.[1];
  if (recordedHash && recordedHash !== hashPath(folder)) {
    throw createStartError(
      `${recordedFolder}, which is recorded in ${locationFile}, is the data folder of Postgres for another path of this ` +
        'folder; copy it, or rename it if this folder was moved, and write the new path to that file',
    );
  }
  const found = statSync(join(recordedFolder ?? embeddedFolder, 'data'), { throwIfNoEntry: false });
  const account = found && found.uid !== 0 ? { uid: found.uid, gid: found.gid } : nobody;

  const parent =
    recordedFolder ??
    (found || canTraverse(account, dirname(folder)) ? embeddedFolder : createLocation(folder, account, shared));
  if (parent === embeddedFolder) openFolder(folder, account);
  createAccountFolder(account, parent);
  // A copy by root, such as a restored backup, belongs to root.
  if (found?.uid === 0) giveTree(account, join(parent, 'data'));
  if (!canTraverse(account, parent)) {
    throw createStartError(
      `user ${account.uid}, as which it runs, cannot reach ${parent}; use a data folder elsewhere, ` +
        'or grant other users search permission (chmod o+x) on the folders above it',
    );
  }
  return {
    account,
    binaries: findReachableBinaries(build, account, shared),
    dataFolder: join(parent, 'data'),
    record: () => {
      if (parent !== embeddedFolder && !recordedFolder) writePrivateFile(locationFile, `${parent}\n`);
    },
  };
}

const getLocationFile = (folder: string) => join(folder, 'postgres.location');

/**
 * Tells an operator where the data of Postgres are, if they are outside the data folder. Returns undefined if they are
 * inside, or if this user cannot read where they are.
 */
export function describeOutsideFolder(folder: string): string | undefined {
  try {
    const outside = readFileIfExists(getLocationFile(folder))?.trim();
    return outside && `Postgres has its data in ${outside}: back up and delete this folder together with ${folder}`;
  } catch {
    return undefined;
  }
}

/** Grants the account search permission on the data folder. The account still cannot read its contents. */
function openFolder(folder: string, account: Account): void {
  const { mode, uid } = statSync(folder);
  if (uid !== account.uid && (mode & 0o001) === 0) chmodSync(folder, (mode & 0o777) | 0o011);
}

function createAccountFolder(account: Account, path: string): void {
  mkdirSync(path, { recursive: true, mode: 0o700 });
  if (statSync(path).uid === 0) chownSync(path, account.uid, account.gid);
  if (!isOwnFolder(path, account.uid)) throw createStartError(`${path} does not belong to user ${account.uid} alone`);
}

/** Gives a folder and its contents to the account; the folder itself last, so that the next start repeats a part. */
function giveTree(account: Account, path: string): void {
  if (lstatSync(path).isDirectory()) for (const name of readdirSync(path)) giveTree(account, join(path, name));
  lchownSync(path, account.uid, account.gid);
}

/** Matches the path of a folder that {@link createLocation} has chosen. */
const locationPattern = /\/data-([0-9a-f]{12})-[0-9a-f]{8}$/;

const hashPath = (folder: string) => createHash('sha256').update(folder).digest('hex').slice(0, 12);

/**
 * Returns the path of a new folder for the data. The name of the folder contains a hash of the data folder and a random
 * part, so that a recreated data folder does not get the old data.
 */
function createLocation(folder: string, account: Account, shared: readonly string[]): string {
  return join(findSharedFolder(account, shared), `data-${hashPath(folder)}-${randomBytes(4).toString('hex')}`);
}

function findReachableBinaries(build: PostgresBinaries, account: Account, shared: readonly string[]): string {
  if (canRunAs(account, build.folder)) return build.folder;
  try {
    linkLibraries(build.folder);
    if (canRunAs(account, build.folder)) return build.folder;
  } catch {
    // The package is read-only, so the links are created in the copy.
  }
  const copy = copyBinaries(build, findSharedFolder(account, shared));
  if (!canRunAs(account, copy)) throw createStartError(`user ${account.uid} cannot run ${copy}/bin/postgres`);
  return copy;
}

function canRunAs(account: Account, binaries: string): boolean {
  try {
    execFileSync(join(binaries, 'bin', 'postgres'), ['--version'], { ...account, cwd: '/', env: {}, stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

function findSharedFolder(account: Account, shared: readonly string[]): string {
  for (const path of shared) {
    try {
      if (mkdirSync(path, { recursive: true, mode: 0o755 }) !== undefined) chmodSync(path, 0o755);
      if (isOwnFolder(path, 0) && canTraverse(account, path)) return path;
    } catch {
      // Read-only, a file, or not accessible: try the next one.
    }
  }
  throw createStartError(
    `Postgres cannot run as root, and user ${account.uid} cannot access any of ${shared.join(', ')}; ` +
      'start Runlake as another user or set RUNLAKE_DATABASE_URL',
  );
}

const createStartError = (reason: string) => runlakeError('ENGINE_START_FAILED', { engine: 'Postgres', reason });

export const user = 'runlake';

/**
 * Creates the database cluster in `dataFolder` if it is missing. The cluster uses UTF-8, sorts text by code point on
 * every machine, and accepts only password authentication. It is created under another name and then renamed, so that a
 * start that is killed does not leave a partial cluster.
 *
 * @throws ENGINE_START_FAILED with the error that initdb reports.
 */
export async function ensureCluster(
  { binaries, dataFolder, account }: ClusterLocation,
  password: string,
): Promise<void> {
  const parent = dirname(dataFolder);
  for (const name of readdirSync(parent)) {
    if (name.startsWith('draft-')) rmSync(join(parent, name), { recursive: true, force: true });
  }
  if (existsSync(join(dataFolder, 'PG_VERSION'))) return;

  const draft = join(parent, `draft-${randomBytes(6).toString('hex')}`);
  mkdirSync(draft, { mode: 0o700 });
  const passwordFile = join(draft, 'password');
  writePrivateFile(passwordFile, password);
  if (account) for (const path of [draft, passwordFile]) chownSync(path, account.uid, account.gid);
  try {
    await promisify(execFile)(
      join(binaries, 'bin', 'initdb'),
      [
        `--pgdata=${join(draft, 'data')}`,
        `--username=${user}`,
        `--pwfile=${passwordFile}`,
        '--auth=scram-sha-256',
        '--encoding=UTF8',
        '--locale-provider=builtin',
        '--builtin-locale=C.UTF-8',
        '--locale=C',
        '--no-instructions',
        // One sync of the whole file system is faster than a separate sync for each of a thousand files.
        ...(process.platform === 'linux' ? ['--sync-method=syncfs'] : []),
      ],
      { cwd: draft, env: { LC_ALL: 'C', TZ: 'UTC' }, ...account },
    );
    renameSync(join(draft, 'data'), dataFolder);
  } catch (error) {
    if (isSystemError(error, 'ENOTEMPTY') || isSystemError(error, 'EEXIST')) {
      throw runlakeError('ENGINE_START_FAILED', { engine: 'Postgres', reason: `${dataFolder} contains other files` });
    }
    const stderr = error instanceof Error && 'stderr' in error ? String(error.stderr).trim() : '';
    const lines = stderr.split('\n');
    // After the error, such as a full disk, initdb says that it removes the folder.
    const reported = lines.find((line) => /\b(?:FATAL|PANIC|error):/.test(line)) ?? lines.at(-1);
    const reason = reported || (error instanceof Error ? error.message : String(error));
    throw runlakeError('ENGINE_START_FAILED', { engine: 'Postgres', reason: `initdb: ${reason}` }, { cause: error });
  } finally {
    rmSync(draft, { recursive: true, force: true });
  }
}

/** User id and group id that Postgres runs as, if they differ from the ids of this process. */
interface Account {
  readonly uid: number;
  readonly gid: number;
}

/** The account `nobody`, because Postgres refuses to run as root. */
const nobody: Account = { uid: 65_534, gid: 65_534 };

/**
 * Returns true if the account has search permission on the folder and on all its parents, according to their owner and
 * mode.
 */
function canTraverse(account: Account, folder: string): boolean {
  for (let path = folder; ; path = dirname(path)) {
    const { uid, gid, mode } = statSync(path);
    const bit = uid === account.uid ? 0o100 : gid === account.gid ? 0o010 : 0o001;
    if ((mode & bit) === 0) return false;
    if (path === dirname(path)) return true;
  }
}

/**
 * Returns true if the path is a real folder that belongs to this owner and that no other user can write to. This check
 * protects against folders that other users have planted in a shared folder.
 */
function isOwnFolder(path: string, uid: number): boolean {
  const stat = lstatSync(path, { throwIfNoEntry: false });
  return stat?.isDirectory() === true && stat.uid === uid && (stat.mode & 0o022) === 0;
}
