/**
 * Copies the Postgres build, once per version, for an account that cannot access the npm package.
 *
 * Invariant: a folder with the final name is complete, or is replaced before use; it is never modified.
 *
 * 1. If the final folder has the files of the build, by name and size, use it.
 * 2. Otherwise copy to a draft next to it, readable for all users, and rename the draft. Move an incomplete copy away first.
 * 3. Compare again as in step 1, because another process may have renamed its draft first.
 */
import { randomBytes } from 'node:crypto';
import {
  chmodSync,
  copyFileSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readlinkSync,
  renameSync,
  rmSync,
  symlinkSync,
} from 'node:fs';
import { join } from 'node:path';
import { isSystemError } from '../private-file.ts';
import { linkLibraries, type PostgresBinaries } from './binaries.ts';

const parts = ['bin', 'lib', 'share'];

/** Returns the folder of the copy inside `shared`, which every account can access. */
export function copyBinaries(build: PostgresBinaries, shared: string): string {
  const target = join(shared, `postgres-${build.version}`);
  for (let attempt = 1; !isWhole(build.folder, target); attempt += 1) {
    const draft = join(shared, `.draft-${randomBytes(6).toString('hex')}`);
    const old = `${draft}-old`;
    try {
      mkdirSync(draft, { mode: 0o755 });
      chmodSync(draft, 0o755);
      for (const part of parts) copyTree(join(build.folder, part), join(draft, part));
      copyFileSync(join(build.folder, 'pg-symlinks.json'), join(draft, 'pg-symlinks.json'));
      linkLibraries(draft);
      if (lstatSync(target, { throwIfNoEntry: false })) renameSync(target, old);
      renameSync(draft, target);
    } catch (error) {
      const raced = ['ENOTEMPTY', 'EEXIST', 'ENOENT'].some((code) => isSystemError(error, code));
      if (!raced || attempt === 5) throw error;
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

function isWhole(from: string, to: string): boolean {
  return parts.every((part) => isSame(join(from, part), join(to, part)));
}

function isSame(from: string, to: string): boolean {
  const [source, copy] = [lstatSync(from), lstatSync(to, { throwIfNoEntry: false })];
  if (!copy) return false;
  if (source.isDirectory()) {
    return readdirSync(from).every((name) => !isNeeded(name) || isSame(join(from, name), join(to, name)));
  }
  return source.isSymbolicLink() ? copy.isSymbolicLink() : source.size === copy.size;
}

/** Static libraries are needed only by compilers. */
const isNeeded = (name: string) => !name.endsWith('.a');
