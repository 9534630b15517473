import { existsSync, readdirSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Plugin } from 'vitest/config';
import { builtPath, rooms, root } from './built-path.ts';

/** What the runner leaves to Node, which reads it as a process of Runlake does. */
export const builtModules = /\/dist\/(api|infra|pipelines|schemas)\/.*\.js$/;

/**
 * Whether `dist/` is what the sources are: all of it was compiled since any of them was written. Else suites take the
 * sources, so that none passes or fails by what was there before.
 */
export function isBuilt(): boolean {
  const built = writtenMs(join(root, 'dist'), '.js');
  return (
    built.length > 0 && Math.min(...built) >= Math.max(...rooms.flatMap((room) => writtenMs(join(root, room), '')))
  );
}

/**
 * Suites that import a source get what was compiled of it: to compile and load the program anew for each suite takes
 * longer than most of them. Children that it starts are compiled ones, too.
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

/** When each file whose name ends so was written, those of packages left out. */
function writtenMs(folder: string, ending: string): number[] {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return entry.name === 'node_modules' ? [] : writtenMs(path, ending);
    return entry.name.endsWith(ending) ? [statSync(path).mtimeMs] : [];
  });
}
