/**
 * Operations on folders that untrusted processes have written to, or still write to.
 *
 * Node's recursive functions walk by path: a process that replaces a folder by a link meanwhile leads them elsewhere, and
 * they fail for paths that are too long. The programs that are run here walk by file descriptor and do not follow links.
 */
import { spawn } from 'node:child_process';
import { lstat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { buildGraphEnvironment } from '../config/graph-environment.ts';
import { isSystemError } from '../embedded/private-file.ts';
import { runlakeError } from '../errors/runlake-error.ts';

interface Identity {
  readonly uid: number;
  readonly gid: number;
}

const maxErrorCharacters = 500;

/** The message contains no path, because owners of deployments read it as the reason of a failed build. */
const createFilesError = (action: string, cause: string) =>
  runlakeError('ISOLATED_FILES_UNUSABLE', { action }, { cause: cause.trim() });

/** Runs a program. Resolves with its standard output when it has ended, also with an error. */
function runProgram(
  program: string,
  args: readonly string[],
  identity?: Identity,
): Promise<{ readonly code: number | null; readonly output: string; readonly errors: string }> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, [...args], {
      cwd: '/',
      env: { PATH: buildGraphEnvironment().PATH, LC_ALL: 'C' },
      stdio: ['ignore', 'pipe', 'pipe'],
      ...(identity && { uid: identity.uid, gid: identity.gid }),
    });
    let output = '';
    let errors = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      if (errors.length < maxErrorCharacters) errors = (errors + text).slice(0, maxErrorCharacters);
    });
    child.once('error', reject);
    child.once('close', (code) => resolve({ code, output, errors }));
  });
}

async function readOwner(path: string): Promise<Identity | undefined> {
  try {
    return await lstat(path);
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return undefined;
    throw error;
  }
}

const isRoot = () => process.getuid?.() === 0;

/**
 * Deletes a file or a folder with everything in it. Root deletes with the user id of the owner first, which reaches
 * nothing that the owner could not delete, and then what is left. A missing path is ignored.
 *
 * @throws ISOLATED_FILES_UNUSABLE if something is left.
 */
export async function deleteTree(path: string): Promise<void> {
  const owner = await readOwner(path);
  if (owner === undefined) return;
  const args = ['-rf', '--', path];
  if (isRoot() && owner.uid !== 0) await runProgram('rm', args, owner).catch(() => undefined);
  const { code, errors } = await runProgram('rm', args);
  if (code !== 0) throw createFilesError('deleted', errors);
}

/**
 * Gives a folder and everything in it to a user, except what belongs to others than the owner of the folder: a hard link
 * may lead to a file of another user.
 *
 * @throws ISOLATED_FILES_UNUSABLE if something in the folder does not belong to the user then.
 */
export async function giveTree(path: string, { uid, gid }: Identity): Promise<void> {
  const owner = await lstat(path);
  const given = await runProgram('chown', ['-RhP', `--from=${owner.uid}`, `${uid}:${gid}`, '--', path]);
  if (given.code !== 0) throw createFilesError('given to another one', given.errors);
  const others = await runProgram('find', [path, '!', '-user', String(uid), '-print', '-quit']);
  if (others.code !== 0 || others.output !== '')
    throw createFilesError('given to another one', `${path} contains files of other users`);
}

/** Disk space of a folder in bytes; 0 if it does not exist. @throws ISOLATED_FILES_UNUSABLE */
export async function measureTree(path: string): Promise<number> {
  // `du` exits with an error if a file is deleted meanwhile. It prints the total nevertheless.
  const { output, errors } = await runProgram('du', ['-sk', '--', path]);
  if (output !== '') return sumSizes(output);
  if ((await readOwner(path)) === undefined) return 0;
  throw createFilesError('measured', errors);
}

/** Folders in which all users can create files. */
const sharedFolders = [...new Set([tmpdir(), '/tmp', '/var/tmp', '/dev/shm'])];

const buildSharedArgs = (uid: number) => [
  ...[...sharedFolders, '-mindepth', '1', '-maxdepth', '1'],
  ...['-user', String(uid), '-exec'],
];

/** Disk space in bytes of what a user has created in the folders that all users can write to. */
export async function measureShared(uid: number): Promise<number> {
  return sumSizes((await runProgram('find', [...buildSharedArgs(uid), 'du', '-sk', '--', '{}', '+'])).output);
}

/** Deletes what a user has created in the folders that all users can write to. */
export async function deleteShared({ uid, gid }: Identity): Promise<void> {
  const args = [...buildSharedArgs(uid), 'rm', '-rf', '--', '{}', '+'];
  await runProgram('find', args, { uid, gid }).catch(() => undefined);
  await runProgram('find', args);
}

/** A file name that contains a line break can only add to the sum. */
function sumSizes(output: string): number {
  let kilobytes = 0;
  for (const [, size] of output.matchAll(/^(\d+)\t/gm)) kilobytes += Number(size);
  return kilobytes * 1_024;
}
