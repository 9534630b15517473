/**
 * Stops Postgres servers that an earlier Runlake process left running on a data folder. This happens if the watchdog
 * was killed, alone or together with Runlake.
 *
 * Invariant: a process gets a signal only if it is proven to be Postgres on this folder. The caller holds the lock of
 * the Runlake data folder, so no other process uses these servers.
 */
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync, readlinkSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { readFileIfExists } from '../private-file.ts';
import { readProcessIdentity, waitForExit } from '../process-identity.ts';

const fastShutdownMs = 5_000;
const immediateShutdownMs = 2_000;
const killTimeoutMs = 2_000;

/**
 * Stops the servers. Resolves when none is left. Also deletes a `postmaster.pid` that contains the process id of
 * another program, because Postgres would otherwise refuse to start.
 */
export async function stopLeftoverServers(dataFolder: string): Promise<void> {
  const pidFile = join(dataFolder, 'postmaster.pid');
  const postmaster = Number.parseInt(readFileIfExists(pidFile) ?? '', 10);
  const find = () => listServerPids(dataFolder, postmaster);
  const areGone = () => find().length === 0;
  if (find().includes(postmaster)) {
    sendSignal([postmaster], 'SIGINT');
    await waitForExit(areGone, fastShutdownMs);
  }
  sendSignal(find(), 'SIGQUIT');
  if (!(await waitForExit(areGone, immediateShutdownMs))) {
    sendSignal(find(), 'SIGKILL');
    await waitForExit(areGone, killTimeoutMs);
  }
  // The process id now belongs to another program. If no process had this id, Postgres would ignore the file.
  if (areGone() && readProcessIdentity(postmaster) !== undefined) rmSync(pidFile, { force: true });
}

function sendSignal(pids: readonly number[], name: NodeJS.Signals): void {
  for (const pid of pids) {
    try {
      process.kill(pid, name);
    } catch {
      // The process has just exited.
    }
  }
}

/** Returns the process ids of Postgres servers whose working directory is this data folder. */
function listServerPids(dataFolder: string, postmaster: number): number[] {
  if (process.platform !== 'linux') return isServerAccordingToPs(postmaster, dataFolder) ? [postmaster] : [];
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        return (
          readlinkSync(`/proc/${pid}/cwd`) === dataFolder &&
          readFileSync(`/proc/${pid}/comm`, 'utf8').trim() === 'postgres' &&
          readProcessIdentity(pid) !== undefined
        );
      } catch {
        // The process belongs to another user, or has exited.
        return false;
      }
    });
}

function isServerAccordingToPs(pid: number, dataFolder: string): boolean {
  if (readProcessIdentity(pid) === undefined) return false;
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
