import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { buildGraphEnvironment } from '../../../../infra/config/graph-environment.ts';
import { openProcessAccounts } from '../../../../infra/isolation/process-accounts.ts';
import { openHttpApp } from '../../../../pipelines/agents/app/http-app.ts';
import { readGraphsFile } from '../../../../pipelines/agents/graphs/graphs-file.ts';
import { type GraphIsolation, openGraphIsolation } from '../../../../pipelines/agents/workers/front/graph-isolation.ts';
import { type ProcessEnd, ProjectProcess } from '../../../../pipelines/agents/workers/front/project-process.ts';
import { openPoolUnderTest, type PoolUnderTest, projectFile } from '../../../agents/pool-under-test.ts';
import { isLinuxRoot } from '../../../house/prerequisites.ts';
import { type Compose, composeData } from '../../../infra/docker/compose-file.ts';
import { logger } from '../../../silent-logger.ts';

/** Access of graph code to the server and other workers, with the server's user id and with isolated user ids. */

const isRoot = isLinuxRoot('isolation of user ids');

let dataDir: string;
let isolation: GraphIsolation;
let shared: PoolUnderTest;
let isolated: PoolUnderTest;
beforeAll(async () => {
  if (!isRoot) return;
  dataDir = mkdtempSync(join(tmpdir(), 'runlake-isolation-'));
  writeFileSync(join(dataDir, 'secret.key'), 'sealed', { mode: 0o600 });
  for (const engine of ['clickhouse', 'postgres']) mkdirSync(join(dataDir, engine), { mode: 0o700 });
  isolation = await openGraphIsolation(await readGraphsFile(projectFile('spy')), {
    agentsIsolation: 'required',
    dataDir,
  });
  shared = await openPoolUnderTest('spy', { workers: 2 });
  isolated = await openPoolUnderTest('spy', { workers: 2, accounts: isolation.accounts });
}, 120_000);
afterAll(async () => {
  await Promise.all([shared?.close(), isolated?.close()]);
  await isolation?.close();
  if (dataDir) rmSync(dataDir, { recursive: true });
});

const spy = (under: PoolUnderTest, code: string, given: unknown = {}) =>
  under.values('spy', { input: { code, given } });

/** Code that finds the process ids of the other workers in the pool. */
const findSiblings = `
const fs = require('node:fs');
const read = (pid, name) => { try { return fs.readFileSync('/proc/' + pid + '/' + name, 'utf8'); } catch { return ''; } };
const uidOf = (pid) => Number(/^Uid:\\s+(\\d+)/m.exec(read(pid, 'status'))?.[1]);
const siblings = fs.readdirSync('/proc').filter((pid) => /^\\d+$/.test(pid) && Number(pid) !== process.pid
  && read(pid, 'status').includes('PPid:\\t' + process.ppid + '\\n') && /worker-process/.test(read(pid, 'cmdline'))
  && (uidOf(pid) === 0) === (process.getuid() === 0));
`;

const attacks: readonly [string, string, RegExp][] = [
  ['the sealing key', `return require('node:fs').readFileSync(given.dataDir + '/secret.key', 'utf8')`, /EACCES/],
  ['the files of ClickHouse', `return require('node:fs').readdirSync(given.dataDir + '/clickhouse')`, /EACCES/],
  ['the files of Postgres', `return require('node:fs').readdirSync(given.dataDir + '/postgres')`, /EACCES/],
  [
    'variables of the server, with the bootstrap key',
    `return require('node:fs').readFileSync('/proc/' + process.ppid + '/environ', 'utf8').length`,
    /EACCES|EPERM/,
  ],
  [
    'the memory of the server',
    `const fs = require('node:fs'); fs.closeSync(fs.openSync('/proc/' + process.ppid + '/mem', 'r+'))`,
    /EACCES|EPERM/,
  ],
  [
    'files that the server has open',
    `return require('node:fs').readdirSync('/proc/' + process.ppid + '/fd')`,
    /EACCES/,
  ],
  ['a signal to the server', `process.kill(process.ppid, 0)`, /EPERM/],
  ['a signal to another worker', `${findSiblings} process.kill(Number(siblings[0]), 0)`, /EPERM/],
  [
    'the memory of another worker',
    `${findSiblings} fs.closeSync(fs.openSync('/proc/' + siblings[0] + '/mem', 'r+'))`,
    /EACCES|EPERM/,
  ],
];

describe.runIf(isRoot)('attacks of graph code', () => {
  test.each(attacks)('isolation denies %s', async (_, code, refused) => {
    const before = await spy(shared, code, { dataDir });
    expect(before.failed, 'with the user id of the server').toBeUndefined();
    const after = await spy(isolated, code, { dataDir });
    expect(after.failed, 'with an isolated user id').toMatch(refused);
  });

  test('isolation denies folders of other workers', async () => {
    const code = `${findSiblings}
      const parent = require('node:path').dirname(process.env.HOME);
      const tried = [parent, ...siblings.map((pid) => parent + '/' + uidOf(pid))].map((path) => {
        try { return fs.readdirSync(path) } catch (error) { return error.code } });
      return { home: process.env.HOME, tmp: require('node:os').tmpdir(), tried };`;
    const { found } = await spy(isolated, code);
    expect(found.tmp).toBe(found.home);
    expect(found.tried.length).toBeGreaterThan(1);
    expect(new Set(found.tried)).toEqual(new Set(['EACCES']));
    for (const path of [dirname(found.home), found.home]) expect(existsSync(path)).toBe(true);
  });

  test('a worker has no capabilities and no additional groups', async () => {
    const { found } = await spy(
      isolated,
      `const status = require('node:fs').readFileSync('/proc/self/status', 'utf8');
       return Object.fromEntries(status.trim().split('\\n').map((line) => line.split(/:\\s*/)))`,
    );
    const { Uid, Gid, Groups, CapPrm, CapEff, CapAmb } = found;
    const [uid] = Uid.split(/\s/);
    expect(Number(uid)).toBeGreaterThan(1_000);
    expect([Uid, Gid]).toEqual(Array(2).fill(Array(4).fill(uid).join('\t')));
    expect(Groups?.trim() ?? '').toBe('');
    expect([CapPrm, CapEff, CapAmb].map((set) => Number.parseInt(set, 16))).toEqual([0, 0, 0]);
  });

  test('each worker has a unique user id', async () => {
    const { found } = await spy(isolated, `${findSiblings} return [process.getuid(), ...siblings.map(uidOf)]`);
    // Two workers for runs and one query worker.
    expect(found).toHaveLength(3);
    expect(new Set(found).size).toBe(3);
  });

  test('the end of a worker removes its child processes and its folder', async () => {
    const { found } = await spy(
      isolated,
      `const child = require('node:child_process').spawn('sleep', ['600'], { detached: true, stdio: 'ignore' });
       child.unref();
       require('node:fs').writeFileSync(process.env.HOME + '/left', 'x');
       return { child: child.pid, home: process.env.HOME }`,
    );
    expect(statSync(`/proc/${found.child}`).isDirectory()).toBe(true);
    const exit = await isolated.run('spy', {
      input: { code: `if (process.env.HOME === given) process.exit(1)`, given: found.home },
    });
    if (exit.outcome.kind === 'finished') {
      // The other worker executed this run.
      const held = await isolated.start('spy', { input: { code: `await new Promise((r) => setTimeout(r, 2_000))` } });
      await isolated.run('spy', {
        input: { code: `if (process.env.HOME === given) process.exit(1)`, given: found.home },
      });
      await held.handle.outcome;
    }
    await vi.waitFor(() => expect(existsSync(found.home)).toBe(false), { timeout: 20_000, interval: 20 });
    await vi.waitFor(() => expect(isAlive(found.child)).toBe(false), { timeout: 20_000, interval: 20 });
  });
});

/**
 * Returns whether a process is alive. Zombies count as dead: orphaned processes remain as zombies if their new parent
 * does not reap them.
 */
function isAlive(pid: number): boolean {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}

test.runIf(isRoot)('the custom app has its own user id, also after a restart', async () => {
  const file = await readGraphsFile(projectFile('spy'));
  const app = await openHttpApp({
    file: { ...file, app: file.app! },
    environment: buildGraphEnvironment(),
    accounts: isolation.accounts,
    heartbeatTimeoutMs: 10_000,
    timeoutMs: 10_000,
    logger,
  });
  const ask = async (method: string) => {
    const signal = AbortSignal.timeout(10_000);
    const target = `/${encodeURIComponent(join(dataDir, 'secret.key').slice(1))}`;
    const answer = await app.send({ method, target, headers: [], body: null, signal });
    let text = '';
    for await (const bytes of answer.body) text += bytes;
    return JSON.parse(text);
  };
  onTestFinished(() => app.close());
  const first = await ask('DELETE');
  expect(first).toMatchObject({ read: 'EACCES', groups: [first.uid] });
  const second = await vi.waitFor(() => ask('GET'), { timeout: 30_000, interval: 50 });
  expect(second.read).toBe('EACCES');
  expect(second.uid).toBeGreaterThan(1_000);
  expect(second.uid).not.toBe(first.uid);
  expect(second.home).not.toBe(first.home);
});

test.runIf(isRoot)('a process changes to its folder with its own rights', async () => {
  const closed = mkdtempSync(join(tmpdir(), 'runlake-closed-'));
  const folder = join(closed, 'inner');
  mkdirSync(folder, { mode: 0o755 });
  const lines: string[] = [];
  const end = await new Promise<ProcessEnd>((resolve) => {
    new ProjectProcess({
      ...{
        program: '/dev/null',
        execArgv: [],
        folder,
        environment: buildGraphEnvironment(),
        accounts: isolation.accounts,
      },
      limits: { headBytes: 1_024, headValues: 10, bodyBytes: 1_024 },
      onFrame: () => undefined,
      onExit: resolve,
      onLine: (line) => lines.push(line),
    });
  });
  rmSync(closed, { recursive: true });
  expect(end).toMatchObject({ code: 126 });
  expect(lines.join('\n')).toContain(folder);
});

describe.runIf(isRoot)('conditions of isolated user ids', () => {
  test('are not met if other users cannot read the project, or can read a secret', async () => {
    const closed = mkdtempSync(join(tmpdir(), 'runlake-closed-'));
    onTestFinished(() => rmSync(closed, { recursive: true }));
    expect(await openProcessAccounts({ readablePaths: [closed], closed: [] })).toBe(
      `other users cannot read ${closed}`,
    );
    expect(await openProcessAccounts({ readablePaths: [], closed: ['/etc/passwd'] })).toBe(
      'other users can read /etc/passwd',
    );
  });

  test('are met with the capabilities in docker-compose.yml', async () => {
    const { cap_add: added = [] } = (composeData as Compose).services.agents!;
    const program = `
      const { openProcessAccounts } = await import(process.argv[1]);
      const accounts = await openProcessAccounts({ readablePaths: ['/'], closed: [process.argv[2]] });
      if (typeof accounts !== 'string') {
        const account = accounts.take();
        account.release();
        await accounts.close();
      }
      console.log(typeof accounts === 'string' ? accounts : 'isolated');`;
    const source = new URL('../../../../infra/isolation/process-accounts.ts', import.meta.url).href;
    const bounds = ['-all', ...added.map((name) => `+${name.toLowerCase()}`)].join(',');
    const loader = ['--import', 'tsx', '--input-type=module', '-e', program, source, join(dataDir, 'secret.key')];
    const { stdout } = await promisify(execFile)('setpriv', [
      ...[`--bounding-set=${bounds}`, '--inh-caps=-all', '--no-new-privs'],
      ...[process.execPath, ...loader],
    ]);
    expect(stdout.trim()).toBe('isolated');
  });

  test('decide together with the setting off, auto or required', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'runlake-closed-'));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const file = { ...(await readGraphsFile(projectFile('spy'))), folder };
    const open = (agentsIsolation: 'auto' | 'required' | 'off') =>
      openGraphIsolation(file, { agentsIsolation, dataDir });
    expect(await open('off')).toMatchObject({
      accounts: undefined,
      words: expect.stringMatching(/ISOLATION is off/),
    });
    expect(await open('auto')).toMatchObject({
      accounts: undefined,
      words: `the user id of Runlake, and is as trusted as the operator (other users cannot read ${folder})`,
    });
    await expect(open('required')).rejects.toMatchObject({ code: 'GRAPH_CODE_NOT_ISOLATED' });
  });
});
