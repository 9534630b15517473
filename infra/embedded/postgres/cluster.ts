import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chownSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { runlakeError } from '../../errors/runlake-error.ts';
import { isSystemError, writePrivateFile } from '../private-file.ts';
import type { Account } from './account.ts';

export const user = 'runlake';

/**
 * Creates the database cluster in `dataFolder` if it is missing: UTF-8, text sorted by code point on every machine,
 * password authentication only. It is created under another name and renamed, so that a start that is killed midway
 * leaves no partial cluster.
 *
 * @throws ENGINE_START_FAILED with the last output line of initdb.
 */
export async function ensureCluster(options: {
  readonly binaries: string;
  readonly dataFolder: string;
  readonly password: string;
  readonly account: Account | undefined;
}): Promise<void> {
  const { binaries, dataFolder, password, account } = options;
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
        // One sync of the file system is faster than one for each of a thousand files.
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
    const reason = stderr.split('\n').at(-1) || (error instanceof Error ? error.message : String(error));
    throw runlakeError('ENGINE_START_FAILED', { engine: 'Postgres', reason: `initdb: ${reason}` }, { cause: error });
  } finally {
    rmSync(draft, { recursive: true, force: true });
  }
}
