import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { stackParts } from '../config/stack-settings.ts';
import { endLeftover } from '../embedded/leftover.ts';
import { endLeftovers as endPostgres } from '../embedded/postgres/leftovers.ts';
import { readFileIfThere } from '../embedded/private-file.ts';
import { untilGone } from '../embedded/until-gone.ts';
import { processNote } from './launch-program.ts';
import { markedProcesses } from './marked-processes.ts';

const goneWithinMs = 5_000;

/** Where things lie in the folder of a stack. Nothing else in it is ever removed. */
export function stackFiles(folder: string) {
  return {
    parts: join(folder, 'parts'),
    state: join(folder, 'state.json'),
    exports: join(folder, 'environment.sh'),
    log: join(folder, 'supervisor.log'),
  };
}

/** Others may pass through it, because Postgres runs as another user where this one is root. */
export function makeStackFolder(folder: string): void {
  mkdirSync(folder, { recursive: true, mode: 0o711 });
}

/** Ends what a supervisor that was killed left running, and removes all data. The caller holds the lock of the folder. */
export async function clearStack(folder: string): Promise<void> {
  const { parts, state, exports } = stackFiles(folder);
  await Promise.all(stackParts.map((name) => endLeftover(processNote(join(parts, name)))));
  const elsewhere = readFileIfThere(join(parts, 'postgres.place'))?.trim();
  await endPostgres(join(elsewhere ?? join(parts, 'postgres'), 'data'));
  await untilGone(() => killAll(markedProcesses(parts)), goneWithinMs);
  if (elsewhere !== undefined) rmSync(elsewhere, { recursive: true, force: true });
  for (const path of [state, exports, parts]) rmSync(path, { recursive: true, force: true, maxRetries: 5 });
}

/** @returns whether there was none. */
function killAll(pids: readonly number[]): boolean {
  for (const pid of pids) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // It has just gone.
    }
  }
  return pids.length === 0;
}
