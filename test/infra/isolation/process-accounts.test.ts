import { spawn } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  openProcessAccounts,
  type ProcessAccount,
  type ProcessAccounts,
} from '../../../infra/isolation/process-accounts.ts';
import { isLinuxRoot } from '../../house/prerequisites.ts';
import { until } from '../until.ts';

/** Lists the processes of a user id, without zombies and those that delete its files. */
function listProcesses(uid: number): string[] {
  return readdirSync('/proc').filter((pid) => {
    try {
      const status = readFileSync(`/proc/${pid}/status`, 'latin1');
      return new RegExp(`^Uid:\\s+${uid}\\s`, 'm').test(status) && !/^State:\s+Z|^Name:\s+(rm|find)$/m.test(status);
    } catch {
      return false;
    }
  });
}

describe.runIf(isLinuxRoot('process accounts'))('an account', () => {
  let accounts: ProcessAccounts;
  beforeAll(async () => {
    accounts = (await openProcessAccounts({ readablePaths: [], closed: [] })) as ProcessAccounts;
  });
  afterAll(() => accounts?.close());

  const run = ({ uid, gid, home }: ProcessAccount, command: string) =>
    spawn('sh', ['-c', command], { uid, gid, cwd: home, env: { PATH: '/usr/bin:/bin' }, stdio: 'ignore' });

  it('is released only when no process is left, also of those that fork all the time', async () => {
    const account = accounts.take();
    // Each process lives only until it has forked the next one.
    const comet = 'use POSIX; exit if fork; POSIX::setsid(); my $end = time + 60; while (time < $end) { exit if fork }';
    run(account, `for i in 1 2 3 4; do perl -e '${comet}'; done; touch started; sleep 60`);
    await until('the processes to start', () => existsSync(join(account.home, 'started')));
    expect(await account.release()).toBe(true);
    expect(listProcesses(account.uid)).toEqual([]);
    await until('its folder to be deleted', () => !existsSync(account.home));
  });

  it('is released also if its processes stop and kill those that would end them', async () => {
    const account = accounts.take();
    const fight = `
      const { readdirSync, statSync, writeFileSync } = require('node:fs');
      writeFileSync('started', '');
      for (const end = Date.now() + 60_000; Date.now() < end; )
        for (const pid of readdirSync('/proc').filter(Number)) {
          try { if (Number(pid) !== process.pid) process.kill(Number(pid), 'SIGSTOP'); } catch {}
        }`;
    writeFileSync(join(account.home, 'fight.cjs'), fight, { mode: 0o644 });
    run(account, `${process.execPath} fight.cjs`);
    await until('the process to start', () => existsSync(join(account.home, 'started')));
    expect(await account.release()).toBe(true);
    expect(listProcesses(account.uid)).toEqual([]);
  });

  it('has its files deleted, also in folders that it cannot write to any more', async () => {
    const account = accounts.take();
    const shared = `/tmp/runlake-shared-${account.uid}`;
    const child = run(account, `mkdir -p a/b ${shared}/c && touch a/b/d && chmod 0 a/b ${shared}/c && chmod 0 a`);
    await until('the command to end', () => child.exitCode !== null);
    expect(child.exitCode).toBe(0);
    await account.release();
    await until('its files to be deleted', () => !existsSync(account.home) && !existsSync(shared));
  });
});
