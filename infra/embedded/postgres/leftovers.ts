/**
 * Ends what an earlier Runlake may have left running on a data folder: it and the watchdog were killed at the same moment,
 * or the watchdog alone.
 *
 * Invariant: only processes that provably are Postgres on this very folder get a signal. The caller holds the lock of the
 * Runlake data folder, so nobody else uses them.
 */
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync, readlinkSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { readFileIfThere } from '../private-file.ts';
import { processIdentity } from '../process-identity.ts';
import { untilGone } from '../until-gone.ts';

const fastWithinMs = 5_000;
const immediateWithinMs = 2_000;
const killWithinMs = 2_000;

/** Resolves when none is left, and no `postmaster.pid` that names a stranger, on which Postgres would refuse to start. */
export async function endLeftovers(dataFolder: string): Promise<void> {
  const pidFile = join(dataFolder, 'postmaster.pid');
  const postmaster = Number.parseInt(readFileIfThere(pidFile) ?? '', 10);
  const find = () => serversOn(dataFolder, postmaster);
  const gone = () => find().length === 0;
  if (find().includes(postmaster)) {
    signal([postmaster], 'SIGINT');
    await untilGone(gone, fastWithinMs);
  }
  signal(find(), 'SIGQUIT');
  if (!(await untilGone(gone, immediateWithinMs))) {
    signal(find(), 'SIGKILL');
    await untilGone(gone, killWithinMs);
  }
  // The number belongs to another program by now. Where it is nobody's, Postgres sees that itself.
  if (gone() && processIdentity(postmaster) !== undefined) rmSync(pidFile, { force: true });
}

function signal(pids: readonly number[], name: NodeJS.Signals): void {
  for (const pid of pids) {
    try {
      process.kill(pid, name);
    } catch {
      // It has just gone.
    }
  }
}

/** Process ids of Postgres servers whose data folder this is. Each works inside it. */
function serversOn(dataFolder: string, postmaster: number): number[] {
  if (process.platform !== 'linux') return isServerByPs(postmaster, dataFolder) ? [postmaster] : [];
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        return (
          readlinkSync(`/proc/${pid}/cwd`) === dataFolder &&
          readFileSync(`/proc/${pid}/comm`, 'utf8').trim() === 'postgres' &&
          processIdentity(pid) !== undefined
        );
      } catch {
        // Somebody else's, or gone.
        return false;
      }
    });
}

function isServerByPs(pid: number, dataFolder: string): boolean {
  if (processIdentity(pid) === undefined) return false;
  try {
    const command = execFileSync('ps', ['-o', 'command=', '-p', String(pid)], {
      encoding: 'utf8',
      env: { LC_ALL: 'C', PATH: '/bin:/usr/bin' },
    });
    return command.includes('postgres') && command.includes(` ${dataFolder} `);
  } catch {
    return false;
  }
}
