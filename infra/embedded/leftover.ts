import { readFileIfThere, writePrivateFile } from './private-file.ts';
import { isSameProcess, processIdentity } from './process-identity.ts';
import { untilGone } from './until-gone.ts';

const goneWithinMs = 5_000;

/** Writes down which process is the server, so that the next start knows it for its own. */
export function noteProcess(path: string, pid: number): void {
  writePrivateFile(path, JSON.stringify([pid, processIdentity(pid) ?? '']));
}

/**
 * Ends the server process that was written down, if it still runs: its parent was killed a moment ago and it has not noticed
 * yet, or it was stopped. Another process that has its number by now is left alone. The caller holds the data folder's lock.
 */
export async function endLeftover(path: string): Promise<void> {
  const [pid, identity] = parse(readFileIfThere(path));
  if (!isSameProcess(pid, identity)) return;
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It has just gone.
  }
  await untilGone(() => !isSameProcess(pid, identity), goneWithinMs);
}

function parse(text: string | undefined): [pid: number, identity: string] {
  try {
    const value: unknown = JSON.parse(text ?? '[]');
    if (Array.isArray(value)) return [Number(value[0] ?? 0), String(value[1] ?? '')];
  } catch {
    // Nobody to be found.
  }
  return [0, ''];
}
