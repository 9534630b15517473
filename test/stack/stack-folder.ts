import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { stopLeftoverServers as endPostgres } from '../../infra/embedded/postgres/leftovers.ts';
import { readFileIfExists } from '../../infra/embedded/private-file.ts';
import { killLeftoverProcess, waitForExit } from '../../infra/embedded/process-identity.ts';
import { processNote } from './launch-program.ts';
import { markedProcesses } from './marked-processes.ts';
import { stackParts } from './stack-settings.ts';

const exitTimeoutMs = 5_000;

/** Returns the paths in the folder of a stack. Other files in this folder are never deleted. */
export function stackFiles(folder: string) {
  return {
    parts: join(folder, 'parts'),
    state: join(folder, 'state.json'),
    exports: join(folder, 'environment.sh'),
    log: join(folder, 'supervisor.log'),
  };
}

/**
 * Creates the folder. Other users get search permission, because Postgres runs as another user if this process runs as
 * root.
 */
export function makeStackFolder(folder: string): void {
  mkdirSync(folder, { recursive: true, mode: 0o711 });
}

/**
 * Kills the processes that a killed supervisor left, and deletes all data. The caller must hold the lock of the folder.
 */
export async function clearStack(folder: string): Promise<void> {
  const { parts, state, exports } = stackFiles(folder);
  await Promise.all(stackParts.map((name) => killLeftoverProcess(processNote(join(parts, name)))));
  const elsewhere = readFileIfExists(join(parts, 'postgres.location'))?.trim();
  await endPostgres(join(elsewhere ?? join(parts, 'postgres'), 'data'));
  await waitForExit(() => killAll(markedProcesses(parts)), exitTimeoutMs);
  if (elsewhere !== undefined) rmSync(elsewhere, { recursive: true, force: true });
  for (const path of [state, exports, parts]) rmSync(path, { recursive: true, force: true, maxRetries: 5 });
}

/**
 * Kills the processes.
 *
 * @returns whether `pids` is empty.
 */
function killAll(pids: readonly number[]): boolean {
  for (const pid of pids) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // The process has just exited.
    }
  }
  return pids.length === 0;
}
