import { spawn } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { LastLines } from '../../infra/embedded/child-program.ts';
import { killLeftoverProcess, recordProcess } from '../../infra/embedded/process-identity.ts';
import { type EngineProcess, waitUntilReady } from '../../infra/embedded/supervise-engine.ts';
import { buildProcessMark } from './marked-processes.ts';

export interface ProgramLaunch {
  readonly title: string;
  /** Folder of the stack for all parts, and the folder of this part in it. */
  readonly folder: string;
  readonly workFolder: string;
  readonly program: string;
  readonly args: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  readonly ask: () => Promise<string>;
  /** Matches output lines that explain why the program exited. */
  readonly explains: RegExp;
  readonly log: (line: string) => void;
}

/** Long, because a JVM starts slowly on a busy machine. */
const readyTimeoutMs = 180_000;
const stopTimeoutMs = 8_000;

/**
 * Starts one server process and waits until it is ready. It inherits no environment and gets a marker variable, by
 * which it can be found if its supervisor was killed.
 *
 * @throws ENGINE_START_FAILED with the server's error message; the process has exited then.
 */
export async function launchProgram(launch: ProgramLaunch): Promise<EngineProcess> {
  const { title, folder, workFolder, log } = launch;
  mkdirSync(workFolder, { recursive: true, mode: 0o700 });
  const note = processNote(workFolder);
  await killLeftoverProcess(note);
  const child = spawn(launch.program, [...launch.args], {
    cwd: workFolder,
    env: {
      LC_ALL: 'C.UTF-8',
      TZ: 'UTC',
      PATH: '/usr/bin:/bin',
      HOME: workFolder,
      ...buildProcessMark(folder),
      ...launch.environment,
    },
    // Runs in its own process group, because only the supervisor handles Ctrl-C.
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  if (child.pid !== undefined) recordProcess(note, child.pid);
  const output = [new LastLines(child.stdout, log), new LastLines(child.stderr, log)];
  return waitUntilReady({
    engine: title,
    child,
    probe: launch.ask,
    explain: () => output.map((lines) => lines.last(launch.explains)).find((line) => line !== undefined),
    requestShutdown: () => child.kill('SIGTERM'),
    readyTimeoutMs,
    stopTimeoutMs,
  });
}

/** Returns the path of the file with the process id of a part. */
export const processNote = (workFolder: string): string => join(workFolder, 'process.json');
