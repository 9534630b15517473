import { spawn } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { untilReady } from '../embedded/engine-child.ts';
import { LastLines } from '../embedded/last-lines.ts';
import { endLeftover, noteProcess } from '../embedded/leftover.ts';
import type { EngineProcess } from '../embedded/supervise-engine.ts';
import { markOf } from './marked-processes.ts';

export interface ProgramLaunch {
  readonly title: string;
  /** The stack's folder for parts, and the part's own folder in it. */
  readonly folder: string;
  readonly workFolder: string;
  readonly program: string;
  readonly args: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  readonly ask: () => Promise<string>;
  /** Lines of its output that say why it ended. */
  readonly explains: RegExp;
  readonly log: (line: string) => void;
}

/** A JVM on a machine with much else to do takes its time. */
const readyWithinMs = 180_000;
const stopWithinMs = 8_000;

/**
 * Starts one process of a server and waits until it answers. It gets nothing of our environment but a mark, by which it is
 * found where everybody who knew it was killed.
 *
 * @throws ENGINE_START_FAILED with the reason in the server's words; then no process is left.
 */
export async function launchProgram(launch: ProgramLaunch): Promise<EngineProcess> {
  const { title, folder, workFolder, log } = launch;
  mkdirSync(workFolder, { recursive: true, mode: 0o700 });
  const note = processNote(workFolder);
  await endLeftover(note);
  const child = spawn(launch.program, [...launch.args], {
    cwd: workFolder,
    env: {
      LC_ALL: 'C.UTF-8',
      TZ: 'UTC',
      PATH: '/usr/bin:/bin',
      HOME: workFolder,
      ...markOf(folder),
      ...launch.environment,
    },
    // A group of its own: Ctrl-C in a terminal is the supervisor's business.
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  if (child.pid !== undefined) noteProcess(note, child.pid);
  const output = [new LastLines(child.stdout, log), new LastLines(child.stderr, log)];
  return untilReady({
    engine: title,
    child,
    ask: launch.ask,
    explain: () => output.map((lines) => lines.last(launch.explains)).find((line) => line !== undefined),
    endGently: () => child.kill('SIGTERM'),
    readyWithinMs,
    stopWithinMs,
  });
}

/** Where the number of a part's process is written down. */
export const processNote = (workFolder: string): string => join(workFolder, 'process.json');
