import { existsSync, readdirSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Plugin } from 'vitest/config';
import { builtPath, root, sourceFolders } from './built-path.ts';

/** Modules that the runner does not transform; Node loads them as in a Runlake process. */
export const builtModules = /\/dist\/(api|infra|pipelines|schemas)\/.*\.js$/;

/**
 * Returns whether `dist/` is newer than every source. If not, suites use the sources, so that no result depends on an
 * outdated build.
 */
export function isBuilt(): boolean {
  const built = listModificationTimesMs(join(root, 'dist'), '.js');
  return (
    built.length > 0 &&
    Math.min(...built) >=
      Math.max(...sourceFolders.flatMap((sourceFolder) => listModificationTimesMs(join(root, sourceFolder), '')))
  );
}

/**
 * Resolves imports of sources in suites to the compiled files: compiling and loading the program for each suite takes
 * longer than most suites. Child processes of suites use compiled files too.
 */
export function builtSources(): Plugin {
  return {
    name: 'built-sources',
    enforce: 'pre',
    resolveId(imported, importer) {
      return (importer && builtPath(imported, dirname(importer))) || null;
    },
  };
}

/** Returns the modification times of the files with this extension, without files of packages. */
function listModificationTimesMs(folder: string, ending: string): number[] {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return entry.name === 'node_modules' ? [] : listModificationTimesMs(path, ending);
    return entry.name.endsWith(ending) ? [statSync(path).mtimeMs] : [];
  });
}
