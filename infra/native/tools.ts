import { execFile } from 'node:child_process';
import { accessSync, constants } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { StackSettings } from '../config/stack-settings.ts';
import { fault } from '../errors/runlake-error.ts';

/** Programs of this machine that bring the stack's parts here. */
export interface Tools {
  readonly cacheFolder: string;
  /** Says what takes time. */
  readonly say: (line: string) => void;
  /** Path of the first of `programs` that is on PATH. @throws STACK_TOOL_MISSING, with what to install. */
  need(part: string, programs: readonly string[], install: string): string;
  /** Path of a program on PATH, if it is there. */
  find(program: string): string | undefined;
  /** Standard output and error of a program. @throws STACK_DOWNLOAD_FAILED with its last line. */
  run(part: string, program: string, args: readonly string[], folder: string): Promise<string>;
}

const longestOutputBytes = 16 * 1024 * 1024;
const longestRunMs = 15 * 60_000;

export function openTools(settings: StackSettings, say: (line: string) => void): Tools {
  const { environment, cacheFolder } = settings;
  const folders = (environment.PATH ?? '').split(':').filter((folder) => folder !== '');
  const find = (program: string) => folders.map((folder) => join(folder, program)).find(isProgram);
  return {
    cacheFolder,
    say,
    find,
    need(part, programs, install) {
      const found = programs.map(find).find((path) => path !== undefined);
      if (found === undefined) throw fault('STACK_TOOL_MISSING', { part, program: programs.join(' or '), install });
      return found;
    },
    async run(part, program, args, folder) {
      try {
        const { stdout, stderr } = await promisify(execFile)(program, [...args], {
          cwd: folder,
          env: environment,
          maxBuffer: longestOutputBytes,
          timeout: longestRunMs,
        });
        return `${stdout}${stderr}`;
      } catch (error) {
        throw fault('STACK_DOWNLOAD_FAILED', { part, program, reason: lastLine(error) }, { cause: error });
      }
    },
  };
}

/** Maven says on standard output what went wrong, the others on standard error. */
function lastLine(error: unknown): string {
  const said = ['stderr', 'stdout'].flatMap((name) =>
    error instanceof Error && name in error ? String((error as Error & Record<string, unknown>)[name]).split('\n') : [],
  );
  const lines = said.map((line) => line.trim()).filter((line) => line !== '');
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
