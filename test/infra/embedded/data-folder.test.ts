import { mkdirSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { loadConfig } from '../../../infra/config/load.ts';
import { pickShared } from '../../../infra/config/print.ts';
import { loadOrCreateSecretKey, openDataFolder, readRunFile } from '../../../infra/embedded/data-folder.ts';
import { folderForTest } from '../../folders.ts';
import { holdFolder, kill } from './processes.ts';

// Engines start in a second, but take many seconds on a busy machine.
vi.setConfig({ testTimeout: 90_000, hookTimeout: 90_000 });

const addresses = {
  url: 'http://127.0.0.1:1',
  clickhouseUrl: 'http://u:p@127.0.0.1:2/d',
  databaseUrl: 'postgres://x',
  graphCode: 'the rights of nobody',
};
const { config } = loadConfig({
  RUNLAKE_PORT: '7',
  RUNLAKE_LOCAL_EXPORT_ROOT: '/srv/exports',
  RUNLAKE_ALLOW_PRIVATE_ENDPOINTS: 'true',
  RUNLAKE_SECRET_KEY: 'nobody may read this',
});

describe('one process at a time', () => {
  it('creates the folder without access for other users', async () => {
    const path = join(folderForTest(), 'a', 'b');
    const folder = await openDataFolder(path);
    expect(statSync(path).mode & 0o777).toBe(0o700);
    await folder.close();
  });

  it('refuses a second open in this and in another process, and names folder and process', async () => {
    const path = folderForTest();
    const folder = await openDataFolder(path);
    const again = openDataFolder(path);
    await expect(again).rejects.toMatchObject({ code: 'DATA_FOLDER_IN_USE' });
    await expect(again).rejects.toThrow(`${path} is in use by another runlake process: process ${process.pid}.`);
    expect(await holdFolder(path, 'nothing')).toMatchObject({ error: 'DATA_FOLDER_IN_USE' });
    await folder.close();
    await folder.close();
    await (await openDataFolder(path)).close();
  });

  it('recognises the folder under another path', async () => {
    const parent = folderForTest();
    const folder = await openDataFolder(join(parent, 'real'));
    symlinkSync(join(parent, 'real'), join(parent, 'other'));
    await expect(openDataFolder(join(parent, 'other'))).rejects.toMatchObject({ code: 'DATA_FOLDER_IN_USE' });
    await folder.close();
  });

  it.runIf(process.platform === 'linux')('fails at once if the folder cannot be created', async () => {
    await expect(openDataFolder('/proc/none/inside')).rejects.toThrow('the folder cannot be created');
  });

  it('can be opened again after kill -9 of its owner', async () => {
    const path = folderForTest();
    const held = await holdFolder(path, 'nothing');
    expect(held.error).toBeUndefined();
    await expect(openDataFolder(path)).rejects.toThrow(`process ${held.child.pid}`);
    await kill(held.child, 'SIGKILL');
    await (await openDataFolder(path)).close();
  });

  it('refuses a folder that a process of another container uses, and leaves its lock alone', async () => {
    const path = join(folderForTest(), 'a-long-name'.repeat(12));
    const held = await holdFolder(path, 'nothing');
    // The holder's process id is unknown here, as that of a process of another container.
    const lock = JSON.stringify({ pid: 999_999_999, identity: 'of-another-container' });
    writeFileSync(join(path, 'lock.1'), lock);
    for (let attempt = 0; attempt < 2; attempt += 1) {
      const opened = openDataFolder(path);
      await expect(opened).rejects.toMatchObject({ code: 'DATA_FOLDER_IN_USE' });
      await expect(opened).rejects.toThrow('in use by another runlake process: a process that is not visible here');
    }
    expect(readFileSync(join(path, 'lock.1'), 'utf8')).toBe(lock);
    await kill(held.child, 'SIGKILL');
    await (await openDataFolder(path)).close();
    expect(readdirSync(path)).toEqual(['lock.2']);
  });

  it('of many concurrent opens after a kill, one succeeds', async () => {
    const path = folderForTest();
    await kill((await holdFolder(path, 'nothing')).child, 'SIGKILL');
    const starters = await Promise.all(Array.from({ length: 6 }, () => holdFolder(path, 'nothing')));
    expect(starters.filter((starter) => starter.error === undefined)).toHaveLength(1);
    expect(starters.filter((starter) => starter.error === 'DATA_FOLDER_IN_USE')).toHaveLength(5);
  });

  it('leaves one lock file after many opens, and ignores a damaged one', async () => {
    const path = folderForTest();
    for (let round = 0; round < 5; round += 1) await (await openDataFolder(path)).close();
    const locks = readdirSync(path).filter((name) => name.startsWith('lock'));
    expect(locks).toEqual(['lock.5']);
    writeFileSync(join(path, 'lock.5'), '{"pid":');
    await (await openDataFolder(path)).close();
  });
});

describe('a folder that cannot be used', () => {
  it.each([
    ['a file', 'file', 'is a file'],
    ['below a file', 'file/below', 'a part of its path is a file'],
    ['a name that is too long', 'n'.repeat(300), 'the path is too long'],
    ['a symbolic link to itself', 'loop', 'loop of symbolic links'],
  ])('%s', async (_what, name, sentence) => {
    const parent = folderForTest();
    writeFileSync(join(parent, 'file'), '');
    symlinkSync(join(parent, 'loop'), join(parent, 'loop'));
    const opened = openDataFolder(join(parent, name));
    await expect(opened).rejects.toMatchObject({ code: 'DATA_FOLDER_UNUSABLE' });
    await expect(opened).rejects.toThrow(sentence);
  });

  it.skipIf(process.getuid?.() === 0)('not writable (skipped: root may write everywhere)', async () => {
    const path = join(folderForTest(), 'closed');
    mkdirSync(path, { mode: 0o500 });
    await expect(openDataFolder(path)).rejects.toThrow('this user has no write permission');
  });
});

describe('run.json', () => {
  it('contains the address of the instance, readable by its owner only, until it is closed', async () => {
    const path = folderForTest();
    const folder = await openDataFolder(path);
    await expect(readRunFile(path)).rejects.toMatchObject({
      code: 'INSTANCE_NOT_READY',
      message: `Process ${process.pid} uses the data folder ${path}, but is still starting, or is stopping.`,
    });
    folder.writeRunFile(addresses, config);
    expect(statSync(join(path, 'run.json')).mode & 0o777).toBe(0o600);
    const secretSettings = ['RUNLAKE_SECRET_KEY'];
    const run = await readRunFile(path);
    expect(run).toMatchObject({ ...addresses, pid: process.pid, secretSettings, settings: { RUNLAKE_PORT: 7 } });
    expect(pickShared(run, ['localExportRoot', 'allowPrivateEndpoints', 'host', 'kafkaBrokers'])).toEqual({
      ...{ localExportRoot: '/srv/exports', allowPrivateEndpoints: true, host: '127.0.0.1', kafkaBrokers: undefined },
    });
    expect(readFileSync(join(path, 'run.json'), 'utf8')).not.toContain('nobody may read this');
    await folder.close();
    await expect(readRunFile(path)).rejects.toMatchObject({ code: 'NOT_RUNNING' });
  });

  it('of an older release is read', async () => {
    const path = folderForTest();
    const folder = await openDataFolder(path);
    folder.writeRunFile(addresses, config);
    const file = join(path, 'run.json');
    const run = JSON.parse(readFileSync(file, 'utf8')) as Record<string, unknown>;
    for (const name of ['uid', 'graph_code', 'settings', 'secret_settings']) delete run[name];
    writeFileSync(file, JSON.stringify(run));
    expect(await readRunFile(path)).toMatchObject({ url: addresses.url, settings: {}, secretSettings: [] });
    expect(pickShared(await readRunFile(path), ['localExportRoot'])).toEqual({});
    await expect(readRunFile(file)).rejects.toMatchObject({ code: 'NOT_RUNNING' });
    await folder.close();
  });

  it('is ignored if its process is dead or its id belongs to another process', async () => {
    const path = folderForTest();
    const held = await holdFolder(path, 'nothing');
    expect(await readRunFile(path)).toMatchObject({ pid: held.child.pid });
    const file = join(path, 'run.json');
    const text = readFileSync(file, 'utf8');
    await kill(held.child, 'SIGKILL');
    expect(readFileSync(file, 'utf8')).toBe(text);
    await expect(readRunFile(path)).rejects.toThrow(`No runlake process is running on the data folder ${path}`);
    writeFileSync(file, text.replace(`"pid": ${held.child.pid}`, `"pid": ${process.pid}`));
    await expect(readRunFile(path)).rejects.toMatchObject({ code: 'NOT_RUNNING' });
  });

  it.each(['', '{', 'null', '[]', '{"pid":"1"}'])('with the contents %j is ignored', async (text) => {
    const path = folderForTest();
    writeFileSync(join(path, 'run.json'), text);
    await expect(readRunFile(path)).rejects.toMatchObject({ code: 'NOT_RUNNING' });
    await expect(readRunFile(join(path, 'missing'))).rejects.toMatchObject({ code: 'NOT_RUNNING' });
  });
});

it('creates the secret key once, with 32 bytes, readable by its owner only', () => {
  const path = folderForTest();
  const key = loadOrCreateSecretKey(path);
  expect(Buffer.from(key, 'base64url')).toHaveLength(32);
  expect(loadOrCreateSecretKey(path)).toBe(key);
  expect(statSync(join(path, 'secret.key')).mode & 0o777).toBe(0o600);
  expect(loadOrCreateSecretKey(folderForTest())).not.toBe(key);
});
