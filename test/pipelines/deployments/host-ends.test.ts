/** What is left of builds when the process of Runlake is killed. */
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { chownSync, existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, expect, it } from 'vitest';
import { openProcessAccounts, type ProcessAccounts } from '../../../infra/isolation/process-accounts.ts';
import { folderForTest } from '../../folders.ts';
import { isLinuxRoot } from '../../house/prerequisites.ts';
import { listProcesses } from '../../infra/embedded/processes.ts';
import { until } from '../../infra/until.ts';

let folder: string;
beforeEach(() => {
  folder = folderForTest();
});

const isRoot = isLinuxRoot('accounts of a host that is killed');

const resolve = (path: string) => new URL(`../../../${path}`, import.meta.url).href;
const program = `
const { openProcessAccounts } = await import(process.argv[1]);
const { runCommand } = await import(process.argv[2]);
const [isolation, command] = process.argv.slice(3);
const accounts = isolation === 'accounts' ? await openProcessAccounts({ readablePaths: [], closed: [] }) : undefined;
await runCommand(
  { program: 'sh', args: ['-c', command], root: '/', folder: '/', environment: { PATH: process.env.PATH }, account: accounts?.take() },
  { signal: AbortSignal.timeout(600_000), onOutput: () => undefined },
);`;

/** Starts a process that runs a command of a build. */
function startHost(isolation: 'accounts' | 'none', command: string) {
  const modules = ['infra/isolation/process-accounts.ts', 'pipelines/deployments/build/run-command.ts'].map(resolve);
  const args = ['--import', 'tsx', '--input-type=module', '-e', program, ...modules, isolation, command];
  // The folder for temporary files is one of its own, so that no other test deletes what the process leaves.
  return spawn(process.execPath, args, { stdio: 'ignore', env: { ...process.env, TMPDIR: folder } });
}

const cases = [
  ['in their process group', 'none', ''],
  ...(isRoot ? ([['also outside of it', 'accounts', 'setsid']] as const) : []),
] as const;
it.each(cases)('ends the processes of a build when it is killed, %s', async (_what, isolation, launcher) => {
  const mark = `runlake-build-${randomUUID()}`;
  const host = startHost(isolation, `${launcher} sh -c 'sleep 600; : ${mark}' & sleep 600`);
  const list = () => listProcesses(mark).filter((line) => !line.includes('--input-type'));
  await until('the processes to start', () => list().length > 0);
  host.kill('SIGKILL');
  await until('the processes to end', () => list().length === 0);
});

it.runIf(isRoot)('ends what a killed process has left, before it deletes its files', async () => {
  const uid = 0x7000_1234;
  const orphan = join(tmpdir(), 'runlake-accounts-4000000-0123456789ab');
  mkdirSync(join(orphan, String(uid)), { recursive: true });
  chownSync(join(orphan, String(uid)), uid, uid);
  writeFileSync(join(orphan, 'owner.json'), JSON.stringify({ pid: 4_000_000, identity: 'of another time' }));
  const left = spawn('sleep', ['600'], { uid, gid: uid, cwd: '/', stdio: 'ignore', detached: true });
  const accounts = (await openProcessAccounts({ readablePaths: [], closed: [] })) as ProcessAccounts;
  await until('the process to end', () => left.signalCode === 'SIGKILL');
  expect(existsSync(orphan)).toBe(false);
  await accounts.close();
});
