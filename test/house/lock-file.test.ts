import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

interface Entry {
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
  readonly resolved?: string;
  readonly integrity?: string;
  readonly engines?: { readonly node?: string };
}

const { packages } = JSON.parse(readFileSync(new URL('../../package-lock.json', import.meta.url), 'utf8')) as {
  packages: Readonly<Record<string, Entry>>;
};

/** The package that npm checks `engines` with; several packages of the lock file depend on it. */
const { satisfies } = createRequire(import.meta.url)('semver') as {
  satisfies(version: string, range: string): boolean;
};

/** Returns whether Node resolves `name` from `path`: in the node_modules of `path`, or of a folder above it. */
function isFound(path: string, name: string): boolean {
  for (let at = path; ; at = at.slice(0, Math.max(0, at.lastIndexOf('node_modules/') - 1))) {
    if (`${at === '' ? '' : `${at}/`}node_modules/${name}` in packages) return true;
    if (at === '') return false;
  }
}

it('the lock file contains every dependency of its packages, including those of other platforms', () => {
  // If the registry lacks some of these packages, npm writes a lock file without them, which `npm ci` then refuses.
  const missing = Object.entries(packages).flatMap(([path, { dependencies, optionalDependencies }]) =>
    Object.keys({ ...dependencies, ...optionalDependencies }).filter((name) => !isFound(path, name)),
  );
  expect(missing).toEqual([]);
});

it('the lock file contains no download URLs', () => {
  expect(Object.entries(packages).filter(([, { resolved }]) => resolved !== undefined)).toEqual([]);
});

it('the lock file has an integrity hash of every package, including those of other platforms', () => {
  const without = Object.entries(packages).filter(([path, { integrity }]) => path !== '' && integrity === undefined);
  expect(without.map(([path]) => path)).toEqual([]);
});

// With `engine-strict`, npm refuses a release of Node that any package excludes.
it.each([
  ['20.18.3', false],
  ['20.19.0', true],
  ['21.7.3', false],
  ['22.12.0', false],
  ['22.13.0', true],
  ['23.11.1', false],
  ['24.0.0', true],
  ['25.2.1', true],
])('`make` accepts Node %s: %j, as all packages do', (version, expected) => {
  const check = fileURLToPath(new URL('../../infra/build/check-node.mjs', import.meta.url));
  const versions = `{ value: { ...process.versions, node: '${version}' } }`;
  const program = `Object.defineProperty(process, 'versions', ${versions}); await import('${check}');`;
  const { status, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', program], { encoding: 'utf8' });
  expect([status, stderr]).toEqual(expected ? [0, ''] : [1, expect.stringContaining(`this is ${version}.`)]);
  const refusing = Object.entries(packages).filter(([, { engines }]) => !satisfies(version, engines?.node ?? '*'));
  expect(refusing.length === 0).toBe(expected);
});
