/**
 * Removes from the packages of `node_modules` below the folder given, or this one, what no role reads. The image runs it, and so
 * does the test of the image's size. Packages that graphs use are their own: they lie beside the graphs.
 */
import { existsSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';

/** Types, sources, maps and texts are for those who develop. */
const endings = ['.ts', '.mts', '.cts', '.map', '.md', '.tsbuildinfo'];

/** Licences and notices stay: they must be passed on with the package. */
const legal = /^(licen[cs]e|copying|notice|third.?party)/i;

/** Folders at the top of a package: tests, and builds for bundlers and browsers, of which Node reads none. */
const folders = [
  '.github',
  'benchmark',
  'benchmarks',
  'dist-es',
  'dist-types',
  'build/esm',
  'build/esnext',
  'examples',
  'test',
  'tests',
];

/** By package. */
const places = {
  // The program of its package for this platform is the one that runs.
  esbuild: ['bin'],
  // Its build for `require`, which nothing here does.
  '@modelcontextprotocol/sdk': ['dist/cjs'],
  // Only `js-tiktoken/lite` is used: these are its tables, once as modules and once as one file.
  'js-tiktoken': ['dist/ranks', 'dist/index.js', 'dist/index.cjs'],
};

/** Packages that are imported, never required. */
const importedOnly = ['@langchain/', 'langsmith'];

prunePackages(join(process.argv[2] ?? '.', 'node_modules'));

/** Packages of a folder `node_modules`, and those inside of them. */
function prunePackages(modules) {
  for (const name of namesIn(modules)) {
    const place = join(modules, name);
    for (const part of [...folders, ...(places[name] ?? [])])
      rmSync(join(place, part), { recursive: true, force: true });
    const isImportedOnly = importedOnly.some((start) => name.startsWith(start));
    pruneFiles(place, isImportedOnly ? [...endings, '.cjs'] : endings);
    if (existsSync(join(place, 'node_modules'))) prunePackages(join(place, 'node_modules'));
  }
}

function namesIn(modules) {
  return readdirSync(modules).flatMap((name) => {
    if (name.startsWith('@')) return readdirSync(join(modules, name)).map((inner) => `${name}/${inner}`);
    return name.startsWith('.') ? [] : [name];
  });
}

function pruneFiles(folder, unwanted) {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const place = join(folder, entry.name);
    if (entry.isDirectory()) {
      if (entry.name !== 'node_modules') pruneFiles(place, unwanted);
    } else if (!legal.test(entry.name) && unwanted.some((ending) => entry.name.endsWith(ending))) rmSync(place);
  }
}
