import { readFileIfThere, writePrivateFile } from './private-file.ts';
import { isSameProcess, processIdentity } from './process-identity.ts';
import { untilGone } from './until-gone.ts';

const exitTimeoutMs = 5_000;

/** Records the server process, so that the next start can identify it. */
export function recordProcess(path: string, pid: number): void {
  writePrivateFile(path, JSON.stringify([pid, processIdentity(pid) ?? '']));
}

/**
 * Kills the recorded server process if it still runs: its parent was killed a moment ago and it has not reacted yet, or it is
 * suspended. Another process that reuses its process id is not touched. The caller holds the data folder's lock.
 */
export async function endLeftover(path: string): Promise<void> {
  const [pid, identity] = parse(readFileIfThere(path));
  if (!isSameProcess(pid, identity)) return;
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // The process has just exited.
  }
  await untilGone(() => !isSameProcess(pid, identity), exitTimeoutMs);
}

function parse(text: string | undefined): [pid: number, identity: string] {
  try {
    const value: unknown = JSON.parse(text ?? '[]');
    if (Array.isArray(value)) return [Number(value[0] ?? 0), String(value[1] ?? '')];
  } catch {
    // No process is recorded.
  }
  return [0, ''];
}
