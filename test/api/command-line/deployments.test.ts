/** `runlake deploy` and `runlake deployments` from the build, on an instance with embedded engines. */
import { mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { list } from 'tar';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { followRevision } from '../../../api/command-line/deployments/follow-revision.ts';
import { packFolder, readSourceFolder } from '../../../api/command-line/deployments/pack-folder.ts';
import { openDatabase } from '../../../infra/postgres/pool.ts';
import { askRunlake } from '../../ask-runlake.ts';
import { folderForSuite } from '../../folders.ts';
import { forSuite } from '../../for-suite.ts';
import { untilLockWait } from '../../infra/postgres/lock-waits.ts';
import { startRunlake } from '../../runlake-process.ts';
import { logger } from '../../silent-logger.ts';
import { echoSource, linkPackages } from '../control-plane/deployment-client.ts';
import { findRefusingUrl } from '../control-plane/open-proxy.ts';
import { runCommand } from './run-command.ts';

const folder = folderForSuite();

/** Creates a folder with files. */
function createFolder(name: string, files: Readonly<Record<string, string>>): string {
  const path = join(folder, name);
  for (const [file, text] of Object.entries(files)) {
    mkdirSync(join(path, file, '..'), { recursive: true });
    writeFileSync(join(path, file), text);
  }
  return path;
}

describe('packing', () => {
  const graphs = JSON.stringify({ graphs: { g: './g.js:graph' }, env: './config/.env' });

  it('leaves out what is ignored, packages, links and the environment file, whose variables it returns', async () => {
    const path = createFolder('packed', {
      'langgraph.json': graphs,
      'g.js': '',
      '@odd.js': '',
      'config/.env': 'KEY=value\nEMPTY=\n# note\nQUOTED="a b"\n',
      '.gitignore': 'dist/\n*.log\n!kept.log\n/top.txt\n',
      '.dockerignore': 'data\n',
      'dist/x.js': '',
      'a.log': '',
      'kept.log': '',
      'top.txt': '',
      'src/top.txt': '',
      'data/big.bin': '',
      'node_modules/x/index.js': '',
      'src/node_modules/y.js': '',
      '.git/HEAD': '',
    });
    symlinkSync('/etc/passwd', join(path, 'link'));
    const source = await readSourceFolder(path);
    expect(source.variables).toEqual({ KEY: 'value', EMPTY: '', QUOTED: 'a b' });
    const tarball = join(folder, 'packed.tar.gz');
    expect(await packFolder(source, tarball, 1_000_000)).toBeGreaterThan(0);
    const packed: string[] = [];
    await list({ file: tarball, onReadEntry: (entry) => packed.push(entry.path.replace(/^\.\//, '')) });
    expect(packed.sort()).toEqual([
      ...['.dockerignore', '.gitignore', '@odd.js', 'g.js', 'kept.log', 'langgraph.json', 'src/top.txt'],
    ]);
  });

  it('accepts the path of the file, and an environment file that is missing', async () => {
    const path = createFolder('named', { 'agents.json': graphs });
    expect(await readSourceFolder(join(path, 'agents.json'))).toMatchObject({
      ...{ folder: path, configPath: 'agents.json', variables: undefined },
    });
  });

  it.each([
    [{}, 'There is no langgraph.json in'],
    [{ 'langgraph.json': '{' }, 'langgraph.json is not valid JSON'],
    [{ 'langgraph.json': '{}', '.gitignore': '*.json' }, 'langgraph.json is excluded by'],
  ])('refuses %j', async (files, message) => {
    const path = createFolder(`refused-${message.length}`, { 'x.js': '', ...files });
    await expect(readSourceFolder(path)).rejects.toMatchObject({
      code: 'BAD_REQUEST',
      message: expect.stringContaining(message),
    });
  });

  it('refuses a folder that does not exist, and a source that is too large, with its largest files', async () => {
    await expect(readSourceFolder(join(folder, 'nowhere'))).rejects.toThrow('There is no folder');
    const path = createFolder('large', { 'langgraph.json': '{}', 'big.bin': 'x'.repeat(5_000), 'small.js': '' });
    const source = await readSourceFolder(path);
    await expect(packFolder(source, join(folder, 'large.tar.gz'), 100)).rejects.toThrow(
      'Largest files: big.bin (5.0 kB)',
    );
  });
});

describe('the commands', () => {
  const runlake = forSuite(() => startRunlake());
  let byFolder: Record<string, string>;
  let byKey: Record<string, string>;
  let source: string;
  beforeAll(async () => {
    byFolder = { RUNLAKE_DATA_DIR: runlake.dataDir };
    byKey = { LANGSMITH_ENDPOINT: `${runlake.url}/api/v1`, LANGSMITH_API_KEY: runlake.apiKey };
    source = createFolder('echo', { ...echoSource('$REPLY'), '.env': 'REPLY=first' });
  });

  const invoke = (slug: string) =>
    askRunlake(runlake, `/deployments/${slug}/runs/wait`, {
      body: { assistant_id: 'echo', input: { said: 'hello' } },
    });

  it('create, update, list, read and delete a deployment', async () => {
    const created = await runCommand(['deploy', source, '--install-command', linkPackages], byFolder);
    expect(created.code, created.text).toBe(0);
    expect(created.text).toMatch(/^Packed 3 files of .*\nCreated the deployment echo \(.*\nSecrets .*: REPLY\n/);
    expect(created.text).toMatch(/\nDEPLOYED\necho serves after .*\n/);
    expect(created.text).toContain(`\n${runlake.url}/deployments/echo\n`);
    expect(await invoke('echo')).toMatchObject({ reply: 'first' });

    writeFileSync(join(source, '.env'), 'REPLY=second');
    const updated = await runCommand(['deploy', source, '--name', 'echo'], byKey);
    expect(updated.code, updated.text).toBe(0);
    expect(updated.text).toContain('Updating the deployment echo');
    await expect.poll(() => invoke('echo'), { timeout: 10_000 }).toMatchObject({ reply: 'second' });

    const listed = await runCommand(['deployments', 'list'], byFolder);
    expect(listed.text).toMatch(/^echo +yes +DEPLOYED +internal_source +http\S+\/deployments\/echo$/m);
    const asJson = await runCommand(['deployments', 'list', '--json'], byKey);
    expect(JSON.parse(asJson.text)).toMatchObject({ name: 'echo', secrets: [{ name: 'REPLY', value: '' }] });
    const logs = await runCommand(['deployments', 'logs', 'echo'], byKey);
    expect(logs.text).toMatch(/^build +Unpacking .*\nbuild +\$ .*\n(?:.*\n)*-- DEPLOYED\n$/);

    const unconfirmed = await runCommand(['deployments', 'delete', 'echo'], byKey);
    expect([unconfirmed.code, unconfirmed.text]).toEqual([1, 'runlake: Without a terminal, specify --confirm.\n']);
    const wrong = await runCommand(['deployments', 'delete', 'echo', '--confirm', 'ech'], byKey);
    expect(wrong.code).toBe(1);
    const deleted = await runCommand(['deployments', 'delete', 'echo', '--confirm', 'echo'], byKey);
    expect(deleted.code, deleted.text).toBe(0);
    await expect
      .poll(async () => (await runCommand(['deployments', 'list'], byKey)).text, { timeout: 30_000, interval: 500 })
      .toBe('No deployments.\n');
    const keys = await runCommand(['keys', 'list'], byFolder);
    expect(keys.text).not.toContain('Created by a command');
  }, 180_000);

  it('show why a build fails, and exit with 1', async () => {
    const broken = createFolder('broken', { ...echoSource('x') });
    const failing = ['deploy', broken, '--install-command', 'echo no such package >&2; exit 3'];
    const { code, text } = await runCommand(failing, byFolder);
    expect(code).toBe(1);
    expect(text).toMatch(/\n {2}no such package\n/);
    expect(text).toMatch(/\nBUILD_FAILED\nBUILD_FAILED: .*3/);
  }, 60_000);

  it('show why a deployment cannot start, with the last lines of its log', async () => {
    const broken = createFolder('unloadable', { ...echoSource('x'), 'echo.js': 'throw new Error("no model key")' });
    const { code, text } = await runCommand(['deploy', broken, '--install-command', linkPackages], byFolder);
    expect(code).toBe(1);
    expect(text).toMatch(/\nDEPLOY_FAILED: Graph 'echo' cannot be loaded: .*no model key.*\n {2}.*no model key.*\n/);
    expect(text).not.toContain('\u{FFFD}');
  }, 60_000);

  it('stop at Ctrl-C, and leave neither a key nor files', async () => {
    const temporary = createFolder('temporary', { 'kept.txt': '' });
    const database = openDatabase({ url: runlake.stores().databaseUrl, logger, timeoutMs: 60_000 });
    try {
      await database.transaction(async (tx) => {
        // The first request of the command waits.
        await tx.execute('LOCK TABLE deployments IN ACCESS EXCLUSIVE MODE');
        const interrupted = runCommand(['deploy', source], { ...byFolder, TMPDIR: temporary }, async (child) => {
          await untilLockWait(database, 'WITH page AS%(SELECT d.id,%');
          child.kill('SIGINT');
        });
        expect(await interrupted).toMatchObject({ code: 130, text: expect.stringMatching(/^Packed .*\n$/) });
      });
    } finally {
      await database.close();
    }
    expect(readdirSync(temporary)).toEqual(['kept.txt']);
    expect((await runCommand(['keys', 'list'], byFolder)).text).not.toContain('Created by a command');
  }, 60_000);

  it('say what is missing or wrong', async () => {
    const noKey = await runCommand(['deployments', 'list'], { LANGSMITH_ENDPOINT: runlake.url });
    expect(noKey).toMatchObject({ code: 1, text: expect.stringContaining('LANGSMITH_API_KEY is required') });
    const wrongKey = await runCommand(['deployments', 'list'], { ...byKey, LANGSMITH_API_KEY: 'wrong' });
    expect(wrongKey).toMatchObject({ code: 1, text: expect.stringContaining('The API key is not valid.') });
    const nowhere = await runCommand(['deployments', 'list'], {
      ...byKey,
      LANGSMITH_ENDPOINT: await findRefusingUrl(),
    });
    expect(nowhere).toMatchObject({ code: 1, text: expect.stringContaining('does not respond (ECONNREFUSED)') });
    const stopped = await runCommand(['deployments', 'list'], { RUNLAKE_DATA_DIR: join(folder, 'nothing') });
    expect(stopped).toMatchObject({ code: 1, text: expect.stringContaining('No runlake process is running') });
    const unknown = await runCommand(['deployments', 'logs', 'nope'], byKey);
    expect(unknown.text).toBe("runlake: No deployment has the name or id 'nope'.\n");
    const help = await runCommand(['deploy', '--help'], {});
    expect(help.text).toContain('LANGSMITH_ENDPOINT');
  }, 60_000);
});

it('says once that no host has accepted a revision', async () => {
  const statuses = ['CREATING', 'CREATING', 'CREATING', 'QUEUED', 'SKIPPED', 'SKIPPED'];
  const ask = async () => ({ logs: [], next_after: 0, status: statuses.shift() }) as never;
  const client = { ask, endpoint: '', workspaceId: undefined, interrupted: new AbortController().signal };
  let nowMs = 0;
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => {
    nowMs += 20_000;
    return nowMs;
  });
  const seen: string[] = [];
  const watcher = {
    onStatus: (status: string) => seen.push(status),
    onUnclaimed: () => seen.push('unclaimed'),
    onLine: () => undefined,
  };
  await followRevision(client, { deploymentId: 'd', revisionId: 'r' }, watcher);
  clock.mockRestore();
  expect(seen).toEqual(['CREATING', 'unclaimed', 'QUEUED', 'SKIPPED']);
});
