import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';

interface Entry {
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
  readonly resolved?: string;
  readonly integrity?: string;
}

const { packages } = JSON.parse(readFileSync(new URL('../../package-lock.json', import.meta.url), 'utf8')) as {
  packages: Readonly<Record<string, Entry>>;
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
