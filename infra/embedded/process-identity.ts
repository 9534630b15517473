import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { isSystemError } from './private-file.ts';

/**
 * Returns the boot and start time of process `pid`, which distinguish it from all other processes that reuse its process id.
 *
 * @returns `undefined` if the process does not exist or is a zombie.
 */
export function processIdentity(pid: number): string | undefined {
  if (!isThere(pid)) return undefined;
  return process.platform === 'linux' ? identityOnLinux(pid) : identityByPs(pid);
}

/** Whether the process with this identity still runs. */
export function isSameProcess(pid: number, identity: string): boolean {
  return processIdentity(pid) === identity;
}

function isThere(pid: number): boolean {
  if (!Number.isInteger(pid) || pid <= 0) return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // EPERM: it exists and belongs to another user.
    return isSystemError(error, 'EPERM');
  }
}

function identityOnLinux(pid: number): string | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The second field is the program name in parentheses and may contain anything, so parsing starts after the last
    // parenthesis.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    if (fields[0] === 'Z' || fields[0] === 'X') return undefined;
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
    return `${boot}/${fields[19]}`;
  } catch (error) {
    if (isSystemError(error, 'ENOENT') || isSystemError(error, 'ESRCH')) return undefined;
    throw error;
  }
}

function identityByPs(pid: number): string | undefined {
  try {
    const [state = '', ...started] = execFileSync('ps', ['-o', 'stat=,lstart=', '-p', String(pid)], {
      encoding: 'utf8',
      env: { LC_ALL: 'C', TZ: 'UTC', PATH: '/bin:/usr/bin' },
    })
      .trim()
      .split(/\s+/);
    return state === '' || state.startsWith('Z') ? undefined : started.join(' ');
  } catch {
    // `ps` exits with 1 if the process does not exist.
    return undefined;
  }
}
