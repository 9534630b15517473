/**
 * Where the Postgres of a data folder runs: as which account, from which binaries, on which folder.
 *
 * As an ordinary user: as that user, out of the npm package, in `<data folder>/postgres`.
 * As root, under which Postgres refuses to run: as the owner of the data that are there, else as `nobody`. Where that
 * account cannot reach the package, a copy of the binaries is made in a shared folder; where it cannot reach the data
 * folder, its data go to a folder of their own there, which `postgres.place` in the data folder remembers.
 */
import { execFileSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { chmodSync, chownSync, existsSync, mkdirSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fault } from '../../errors/runlake-error.ts';
import { readFileIfThere, writePrivateFile } from '../private-file.ts';
import { type Account, canPass, isOwnFolder, nobody } from './account.ts';
import { linkLibraries, type PostgresBinaries } from './binaries.ts';
import { copyBinaries } from './copy-binaries.ts';

export interface Place {
  readonly account: Account | undefined;
  readonly binaries: string;
  readonly dataFolder: string;
  /** To be called once the data are there: they are looked for in this place from then on. */
  remember(): void;
}

const sharedFolders = ['/var/lib/runlake', join(tmpdir(), 'runlake')];

/**
 * @param shared folders to try, in this order, for what does not fit into the package and the data folder.
 * @throws ENGINE_START_FAILED where the data are gone, or no folder can be reached.
 */
export function choosePlace(folder: string, build: PostgresBinaries, shared: readonly string[] = sharedFolders): Place {
  const inside = join(folder, 'postgres');
  if (process.getuid?.() !== 0) {
    linkLibraries(build.folder);
    mkdirSync(inside, { recursive: true, mode: 0o700 });
    return { account: undefined, binaries: build.folder, dataFolder: join(inside, 'data'), remember: () => {} };
  }

  const memory = join(folder, 'postgres.place');
  const remembered = readFileIfThere(memory)?.trim();
  if (remembered && !existsSync(join(remembered, 'data'))) {
    throw cannotStart(`its data were in ${remembered}, which is gone; ${memory} remembers that`);
  }
  const found = statSync(join(remembered ?? inside, 'data'), { throwIfNoEntry: false });
  const account = found && found.uid !== 0 ? { uid: found.uid, gid: found.gid } : nobody;

  const parent =
    remembered ?? (found || canPass(account, dirname(folder)) ? inside : newPlace(folder, account, shared));
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

/** Lets the account pass through the data folder, whose contents stay closed to it. */
function openFolder(folder: string, account: Account): void {
  const { mode, uid } = statSync(folder);
  if (uid !== account.uid && (mode & 0o001) === 0) chmodSync(folder, (mode & 0o777) | 0o011);
}

function makeFor(account: Account, path: string): void {
  mkdirSync(path, { recursive: true, mode: 0o700 });
  if (statSync(path).uid === 0) chownSync(path, account.uid, account.gid);
  if (!isOwnFolder(path, account.uid)) throw cannotStart(`${path} does not belong to user ${account.uid} alone`);
}

/** Named after the data folder, and anew each time: a deleted data folder does not come back to its old data. */
function newPlace(folder: string, account: Account, shared: readonly string[]): string {
  const hash = createHash('sha256').update(folder).digest('hex').slice(0, 12);
  return join(sharedFolder(account, shared), `data-${hash}-${randomBytes(4).toString('hex')}`);
}

function reachableBinaries(build: PostgresBinaries, account: Account, shared: readonly string[]): string {
  if (runsAs(account, build.folder)) return build.folder;
  try {
    linkLibraries(build.folder);
    if (runsAs(account, build.folder)) return build.folder;
  } catch {
    // The package is read-only: the copy gets the links.
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
      // Read-only, a file, or out of reach: the next one.
    }
  }
  throw cannotStart(
    `it does not run as root, and user ${account.uid} can reach none of ${shared.join(', ')}; ` +
      'start Runlake as another user or set RUNLAKE_DATABASE_URL',
  );
}

const cannotStart = (reason: string) => fault('ENGINE_START_FAILED', { engine: 'Postgres', reason });
