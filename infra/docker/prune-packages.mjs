/**
 * Deletes files that no role reads from `node_modules` of the given folder (default: the working directory). The build
 * of the image and the test of the image's size run it. It does not affect packages of graphs, which are installed next
 * to the graphs.
 */
import { existsSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';

/** Types, sources, source maps and documentation are needed only for development. */
const endings = ['.ts', '.mts', '.cts', '.map', '.md', '.tsbuildinfo'];

/** Licences and notices stay: they must be passed on with the package. */
const legal = /^(licen[cs]e|copying|notice|third.?party)/i;

/** Top-level folders of packages that Node does not read: tests, and builds for bundlers and browsers. */
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

/** Unused paths by package. */
const places = {
  // The platform package contains the program that runs.
  esbuild: ['bin'],
  // The CommonJS build, which is not used.
  '@modelcontextprotocol/sdk': ['dist/cjs'],
  // Only `js-tiktoken/lite` is used; these are token tables, as modules and as one file.
  'js-tiktoken': ['dist/ranks', 'dist/index.js', 'dist/index.cjs'],
};

/** Packages that are imported as ES modules only. */
const importedOnly = ['@langchain/', 'langsmith'];

prunePackages(join(process.argv[2] ?? '.', 'node_modules'));

/** Prunes the packages of a `node_modules` folder and their nested packages. */
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
