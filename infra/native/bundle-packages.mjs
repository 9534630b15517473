// Each process that starts reads what it imports file by file, and one package alone is most of those files. The build puts it
// into a few, beside what was compiled: `dist/node_modules` is where Node looks first for what `dist` imports.
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { buildSync } from 'esbuild';

const installed = (path) => new URL(`../../node_modules/typebox/${path}`, import.meta.url);
const bundled = new URL('../../dist/node_modules/typebox/', import.meta.url);

const { name, version, license, exports } = JSON.parse(readFileSync(installed('package.json'), 'utf8'));
/** Names of the places that can be imported: `.` and `./value`, and so on. */
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
