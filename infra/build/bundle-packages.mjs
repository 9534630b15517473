// Each process reads its imports file by file at the start, and most of these files belong to one package. The build
// bundles that package into a few files in `dist/node_modules`, where Node looks first for the imports of `dist`.
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { buildSync } from 'esbuild';

const installed = (path) => new URL(`../../node_modules/typebox/${path}`, import.meta.url);
const bundled = new URL('../../dist/node_modules/typebox/', import.meta.url);

const { name, version, license, exports } = JSON.parse(readFileSync(installed('package.json'), 'utf8'));
/** Names of the importable entry points: `.`, `./value` and so on. */
const entries = Object.keys(exports).map((place) => (place === '.' ? 'index' : place.slice(2)));
buildSync({
  entryPoints: entries.map((entry) => ({
    in: installed(entry === 'index' ? 'build/index.mjs' : `build/${entry}/index.mjs`).pathname,
    out: entry,
  })),
  outdir: bundled.pathname,
  outExtension: { '.js': '.mjs' },
  bundle: true,
  splitting: true,
  format: 'esm',
  platform: 'node',
  target: 'node20',
  logLevel: 'warning',
});
const places = Object.keys(exports).map((place, index) => [place, `./${entries[index]}.mjs`]);
writeFileSync(
  new URL('package.json', bundled),
  JSON.stringify({ name, version, license, type: 'module', exports: Object.fromEntries(places) }),
);
cpSync(installed('license'), new URL('license', bundled));
