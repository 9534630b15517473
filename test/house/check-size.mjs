// House rule: a source file contains one operation; at most 400 lines a file, and a median of at most 150. A file of the
// product below 40 lines has three importers or more, or is listed here.
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const maxLines = 400;
const minLines = 40;
const minImporters = 3;
const mayBeSmall = [
  // Entry points of processes and builds.
  /^infra\/build\//,
  /-child\.ts$/,
  /^pipelines\/agents\/workers\/child\/typescript-preload\.ts$/,
  // Loaded only when a command or a server needs them.
  /^api\/command-line\/(disk|serve-http)\.ts$/,
  /^infra\/config\/print\.ts$/,
  // The list of operations of an area.
  /^api\/control-plane\/operations\.ts$/,
  // Contracts: types of two adapters or of a package, the environment, CSV, what the sink owes the roll-up.
  /^infra\/(jobs\/backend|event-log\/avsc-internals\.d|config\/quiet-storage-client|config\/tool-credentials|csv\/format-csv)\.ts$/,
  /^pipelines\/usage\/mark-hours-dirty\.ts$/,
];
const maxMedian = 150;
const generated = 'web/src/api/types.d.ts';
const files = execFileSync('git', ['ls-files', '*.ts', '*.tsx', '*.css', '*.mjs', '*.cjs'], { encoding: 'utf8' })
  .trim()
  .split('\n')
  .filter((file) => existsSync(file) && file !== generated);
const sizes = files.map((file) => ({ file, lines: readFileSync(file, 'utf8').split('\n').length - 1 }));
sizes.sort((a, b) => a.lines - b.lines);
const tooLarge = sizes.filter(({ lines }) => lines > maxLines);
const median = sizes[Math.floor(sizes.length / 2)]?.lines ?? 0;
const badNames = files.filter((file) => /(^|\/)(utils?|helpers?|common|manager)(\/|\.)/.test(file));

const product = files.filter((file) => /^(schemas|infra|pipelines|api)\//.test(file));
const importers = new Map(product.map((file) => [file, 0]));
for (const file of product) {
  const imported = readFileSync(file, 'utf8').matchAll(/(?:from|import\()\s*'(\.[^']+)'/g);
  for (const target of new Set([...imported].map(([, path]) => join(file, '..', path))))
    if (importers.has(target)) importers.set(target, importers.get(target) + 1);
}
const tooSmall = sizes.filter(
  ({ file, lines }) =>
    lines < minLines &&
    (importers.get(file) ?? minImporters) < minImporters &&
    !mayBeSmall.some((pattern) => pattern.test(file)),
);

for (const { file, lines } of tooSmall)
  console.error(
    `${file}: ${lines} lines, under ${minLines}, for ${importers.get(file)} files: merge it into one of them`,
  );
for (const { file, lines } of tooLarge)
  console.error(`${file}: ${lines} lines, over ${maxLines}: does it contain one operation?`);
for (const file of badNames) console.error(`${file}: the name is too general`);
if (median > maxMedian) console.error(`the median file has ${median} lines, over ${maxMedian}`);
if (tooSmall.length > 0 || tooLarge.length > 0 || badNames.length > 0 || median > maxMedian) process.exit(1);
