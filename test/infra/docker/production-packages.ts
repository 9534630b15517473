import { execFileSync } from 'node:child_process';
import { copyFileSync, linkSync, lstatSync, mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { readText, root } from './compose-file.ts';

interface LockedPackage {
  readonly dev?: boolean;
  readonly optional?: boolean;
  readonly devOptional?: boolean;
}

/** Platform libraries: optional in the lock file, and installed into the image by name. */
const named = [`@duckdb/node-bindings-linux-${process.arch}`, `@esbuild/linux-${process.arch}`].map(
  (name) => `node_modules/${name}`,
);

/**
 * Returns the package folders that the image installs: those of `npm ci --omit=dev --omit=optional`, and {@link named}.
 */
export function productionPackages(): readonly string[] {
  const { packages } = JSON.parse(readText('package-lock.json')) as { packages: Record<string, LockedPackage> };
  return Object.entries(packages).flatMap(([place, { dev, optional, devOptional }]) =>
    place === '' || ((dev || optional || devOptional) && !named.includes(place)) ? [] : [place],
  );
}

/** Installs the production packages of this checkout into `folder`, without the files that the image removes. */
export function installProductionPackages(folder: string): void {
  for (const place of productionPackages()) linkTree(new URL(place, root).pathname, join(folder, place));
  execFileSync(process.execPath, [new URL('infra/docker/prune-packages.mjs', root).pathname, folder]);
}

/** Creates hard links to the files instead of copies. Nested packages are separate entries. */
function linkTree(source: string, target: string): void {
  mkdirSync(target, { recursive: true });
  for (const entry of readdirSync(source, { withFileTypes: true })) {
    const [from, to] = [join(source, entry.name), join(target, entry.name)];
    if (entry.isDirectory()) {
      if (entry.name !== 'node_modules') linkTree(from, to);
    } else linkOrCopy(from, to);
  }
}

function linkOrCopy(from: string, to: string): void {
  try {
    linkSync(from, to);
  } catch {
    // The folder may be on another file system.
    copyFileSync(from, to);
  }
}

/** Returns the size on disk in bytes, in whole blocks, as for an unpacked image layer. */
export function bytesOf(path: string): number {
  const { blocks } = lstatSync(path);
  if (!lstatSync(path).isDirectory()) return blocks * 512;
  return readdirSync(path).reduce((sum, name) => sum + bytesOf(join(path, name)), blocks * 512);
}
