/**
 * `npm run docs`: generates `docs/reference` from the code. `npm run docs -- --check` writes nothing and fails if a
 * page is out of date.
 */
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { handwrittenPages, referencePages } from './pages/reference-pages.ts';

const folder = fileURLToPath(new URL('reference/', import.meta.url));
const check = process.argv.includes('--check');

mkdirSync(folder, { recursive: true });
const pages = new Map((await referencePages()).map(({ file, text }) => [file, text]));
const present = new Set(readdirSync(folder));
const stale = [...pages].filter(([file, text]) => !present.has(file) || readFileSync(folder + file, 'utf8') !== text);
const left = [...present].filter((file) => !pages.has(file) && !handwrittenPages.includes(file));

if (check) {
  for (const [file] of stale) console.error(`docs/reference/${file} is out of date: run \`npm run docs\``);
  for (const file of left)
    console.error(`docs/reference/${file} is not generated from any source: run \`npm run docs\``);
  if (stale.length + left.length > 0) process.exitCode = 1;
} else {
  for (const [file, text] of stale) writeFileSync(folder + file, text);
  for (const file of left) rmSync(folder + file);
  const changed = [...stale.map(([file]) => file), ...left];
  console.log(changed.length === 0 ? 'docs/reference is up to date.' : `Changed: ${changed.join(', ')}`);
}
