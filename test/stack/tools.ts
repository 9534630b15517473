import { execFile } from 'node:child_process';
import { accessSync, constants } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { StackSettings } from './stack-settings.ts';

/** Programs of this machine that download the parts of the stack. */
export interface Tools {
  readonly cacheFolder: string;
  /** Number of shards from the settings. */
  readonly clickhouseShards: number;
  /** Prints the progress of slow steps. */
  readonly say: (line: string) => void;
  /**
   * Returns the path of the first of `programs` that is on PATH.
   *
   * @throws STACK_TOOL_MISSING with `install`.
   */
  requireProgram(part: string, programs: readonly string[], install: string): string;
  /** Returns the path of a program, if it is on PATH. */
  find(program: string): string | undefined;
  /**
   * Runs a program and returns its stdout and stderr. @throws STACK_DOWNLOAD_FAILED with its first error line or last line.
   */
  run(part: string, program: string, args: readonly string[], folder: string): Promise<string>;
}

const maxOutputBytes = 16 * 1024 * 1024;
const maxRunMs = 15 * 60_000;

export function openTools(settings: StackSettings, say: (line: string) => void): Tools {
  const { environment, cacheFolder, clickhouseShards } = settings;
  const folders = (environment.PATH ?? '').split(':').filter((folder) => folder !== '');
  const find = (program: string) => folders.map((folder) => join(folder, program)).find(isProgram);
  return {
    cacheFolder,
    clickhouseShards,
    say,
    find,
    requireProgram(part, programs, install) {
      const found = programs.map(find).find((path) => path !== undefined);
      if (found === undefined)
        throw runlakeError('STACK_TOOL_MISSING', { part, program: programs.join(' or '), install });
      return found;
    },
    async run(part, program, args, folder) {
      try {
        const { stdout, stderr } = await promisify(execFile)(program, [...args], {
          cwd: folder,
          env: environment,
          maxBuffer: maxOutputBytes,
          timeout: maxRunMs,
        });
        return `${stdout}${stderr}`;
      } catch (error) {
        throw runlakeError('STACK_DOWNLOAD_FAILED', { part, program, reason: lastLine(error) }, { cause: error });
      }
    },
  };
}

/** Maven writes errors to stdout, the other programs to stderr. */
function lastLine(error: unknown): string {
  const output = ['stderr', 'stdout'].flatMap((name) =>
    error instanceof Error && name in error ? String((error as Error & Record<string, unknown>)[name]).split('\n') : [],
  );
  const lines = output.map((line) => line.trim()).filter((line) => line !== '');
  const reason = lines.find((line) => /error/i.test(line)) ?? lines.at(-1);
  return (reason ?? (error instanceof Error ? error.message : String(error))).slice(0, 500);
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
