import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';

interface Entry {
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
  readonly resolved?: string;
  readonly integrity?: string;
  readonly optional?: boolean;
  readonly os?: readonly string[];
  readonly cpu?: readonly string[];
  readonly libc?: readonly string[];
}

const { packages } = JSON.parse(readFileSync(new URL('../../package-lock.json', import.meta.url), 'utf8')) as {
  packages: Readonly<Record<string, Entry>>;
};

/** Whether somebody at `place` finds the package: in its own folder, or in one above. */
function isFound(place: string, name: string): boolean {
  for (let at = place; ; at = at.slice(0, Math.max(0, at.lastIndexOf('node_modules/') - 1))) {
    if (`${at === '' ? '' : `${at}/`}node_modules/${name}` in packages) return true;
    if (at === '') return false;
  }
}

it('the lock file names every package that another one asks for, also those of other platforms', () => {
  // A registry that lacks some of them lets npm write a lock file without, which `npm ci` then refuses.
  const missing = Object.entries(packages).flatMap(([place, { dependencies, optionalDependencies }]) =>
    Object.keys({ ...dependencies, ...optionalDependencies }).filter((name) => !isFound(place, name)),
  );
  expect(missing).toEqual([]);
});

it('the lock file names no host to fetch from', () => {
  expect(Object.entries(packages).filter(([, { resolved }]) => resolved !== undefined)).toEqual([]);
});

it('the lock file has the integrity of every package that is installed on Linux x64', () => {
  // The registry that the lock file was made with lacks packages of other platforms, so that their hashes are not known.
  const without = Object.entries(packages).filter(([place, { integrity }]) => place !== '' && integrity === undefined);
  const installed = without.filter(
    ([, { optional, os = ['linux'], cpu = ['x64'], libc = ['glibc'] }]) =>
      optional !== true || (os.includes('linux') && cpu.includes('x64') && libc.includes('glibc')),
  );
  expect(installed.map(([place]) => place)).toEqual([]);
});
