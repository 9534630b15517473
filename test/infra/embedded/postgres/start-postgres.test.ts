import { execFileSync, spawn } from 'node:child_process';
import { chmodSync, cpSync, existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { findBinaries } from '../../../../infra/embedded/postgres/binaries.ts';
import {
  type EmbeddedPostgres,
  type PostgresOptions,
  startPostgres,
} from '../../../../infra/embedded/postgres/start-postgres.ts';
import { createLogger, type Logger } from '../../../../infra/telemetry/logger.ts';
import { folderForTest } from '../../../folders.ts';
import { isLinuxRoot } from '../../../house/prerequisites.ts';
import { mountDisk } from '../../full-disk.ts';
import { askPostgres, listProcesses } from '../processes.ts';

// Engines start in a second, but take many seconds on a busy machine.
vi.setConfig({ testTimeout: 90_000, hookTimeout: 90_000 });

let engine: EmbeddedPostgres | undefined;
afterEach(async () => {
  await engine?.stop();
  engine = undefined;
});

async function start(options: PostgresOptions): Promise<EmbeddedPostgres> {
  engine = await startPostgres(options);
  return engine;
}

async function stop(): Promise<void> {
  await engine?.stop();
  engine = undefined;
}

const postmasterPid = (dataFolder: string) =>
  Number.parseInt(readFileSync(join(dataFolder, 'postmaster.pid'), 'utf8'), 10);
/** Returns the parent of a process: the watchdog is the parent of the server. */
const readParentPid = (pid: number) =>
  Number(execFileSync('ps', ['-o', 'ppid=', '-p', String(pid)], { encoding: 'utf8' }));
const isUp = (url: string) =>
  askPostgres(url, 'SELECT 1').then(
    () => true,
    () => false,
  );

it('is durable, uses UTF-8 and code point order, and requires the password', async () => {
  const folder = folderForTest();
  const { url } = await start({ folder });
  expect(await askPostgres(url, 'SHOW server_encoding')).toEqual(['UTF8']);
  expect(await askPostgres(url, 'SHOW fsync')).toEqual(['on']);
  expect(await askPostgres(url, 'SHOW unix_socket_directories')).toEqual(['']);
  expect(await askPostgres(url, "SELECT lower('ÄÖ'), 'Z' < 'a', 'é' > 'z'")).toEqual(['äö', true, true]);
  expect(await askPostgres(url, 'SELECT rolpassword FROM pg_authid WHERE rolcanlogin')).toEqual([
    expect.stringMatching(/^SCRAM-SHA-256/),
  ]);
  const wrong = new URL(url);
  wrong.password = 'wrong';
  await expect(askPostgres(wrong.href, 'SELECT 1')).rejects.toThrow('password authentication failed');
  expect(statSync(join(folder, 'postgres.password')).mode & 0o777).toBe(0o600);
});

it.runIf(isLinuxRoot('a full disk'))('says that the disk is full if it cannot create its files', async () => {
  const disk = mountDisk(8);
  try {
    const error = await start({ folder: disk.folder }).catch((cause: Error) => cause);
    expect(error).toMatchObject({ code: 'ENGINE_START_FAILED', message: expect.stringContaining('No space left') });
  } finally {
    disk.remove();
  }
});

it.runIf(isLinuxRoot('a full disk'))('restarts after a crash on a full disk when there is space again', async () => {
  const disk = mountDisk(192);
  try {
    const failed = vi.fn();
    const logger = { ...createLogger('silent', 'test'), error: failed } as unknown as Logger;
    const { url } = await start({ folder: disk.folder, logger });
    // The first connection to a database writes a file.
    expect(await isUp(url)).toBe(true);
    disk.fill();
    // Needs new files of the write-ahead log, without which Postgres ends.
    const fillLog = () =>
      askPostgres(url, "SELECT pg_logical_emit_message(true, '', repeat('x', 20000000)), pg_switch_wal()").catch(
        () => undefined,
      );
    const listReasons = () =>
      failed.mock.calls.flatMap(([{ reason }, message]) => (message.includes('failed to restart') ? [reason] : []));
    await expect
      .poll(
        async () => {
          await fillLog();
          return listReasons().length;
        },
        { timeout: 30_000 },
      )
      .toBeGreaterThan(2);
    for (const reason of listReasons()) expect(reason).toContain('No space left on device');
    disk.free();
    await expect.poll(() => isUp(url), { timeout: 40_000 }).toBe(true);
    await stop();
  } finally {
    disk.remove();
  }
});

describe('a crash', () => {
  it.each(['SIGKILL', 'SIGABRT'] as const)('of the server (%s): it restarts on the same address', async (signal) => {
    const folder = folderForTest();
    const { url } = await start({ folder });
    await askPostgres(url, 'CREATE TABLE t AS SELECT 1 AS n');
    const crashed = postmasterPid(join(folder, 'postgres', 'data'));
    process.kill(crashed, signal);
    await expect.poll(() => askPostgres(url, 'SELECT n FROM t').catch(() => 'down'), { timeout: 20_000 }).toEqual([1]);
    expect(postmasterPid(join(folder, 'postgres', 'data'))).not.toBe(crashed);
  });

  it('a server that does not respond is stopped and another one started', async () => {
    const folder = folderForTest();
    const data = join(folder, 'postgres', 'data');
    const { url } = await start({ folder, times: { probeIntervalMs: 100, probeTimeoutMs: 2_000 } });
    await askPostgres(url, 'CREATE TABLE t AS SELECT 1 AS n');
    const suspended = postmasterPid(data);
    process.kill(suspended, 'SIGSTOP');
    await expect
      .poll(() => askPostgres(url, 'SELECT n FROM t').catch(() => 'down'), { timeout: 80_000, interval: 500 })
      .toEqual([1]);
    expect(postmasterPid(data)).not.toBe(suspended);
  });

  it('of the watchdog: its server is stopped and another one started', async () => {
    const folder = folderForTest();
    const data = join(folder, 'postgres', 'data');
    const { url } = await start({ folder });
    await askPostgres(url, 'CREATE TABLE t AS SELECT 1 AS n');
    const orphan = postmasterPid(data);
    process.kill(readParentPid(orphan), 'SIGKILL');
    await expect.poll(() => postmasterPid(data), { timeout: 20_000 }).not.toBe(orphan);
    await expect.poll(() => isUp(url), { timeout: 20_000 }).toBe(true);
    expect(listProcesses(folder).filter((line) => line.trim().startsWith(`${orphan} `))).toEqual([]);
    expect(await askPostgres(url, 'SELECT n FROM t')).toEqual([1]);
  });
});

it('a postmaster.pid with the id of an unrelated process does not prevent the start, and that process survives', async () => {
  const folder = folderForTest();
  const data = join(folder, 'postgres', 'data');
  await start({ folder });
  const file = readFileSync(join(data, 'postmaster.pid'), 'utf8');
  await stop();
  const stranger = spawn('sleep', ['60'], { stdio: 'ignore' });
  try {
    writeFileSync(join(data, 'postmaster.pid'), file.replace(/^\d+/, String(stranger.pid)));
    const { url } = await start({ folder });
    expect(await isUp(url)).toBe(true);
    expect(stranger.exitCode).toBeNull();
  } finally {
    stranger.kill('SIGKILL');
  }
});

it('a half-created cluster is created again', async () => {
  const folder = folderForTest();
  mkdirSync(join(folder, 'postgres', 'draft-0123', 'data'), { recursive: true });
  const { url } = await start({ folder });
  expect(await isUp(url)).toBe(true);
  expect(existsSync(join(folder, 'postgres', 'draft-0123'))).toBe(false);
});

describe('reports', () => {
  it('a lost or a wrong password', async () => {
    const folder = folderForTest();
    await start({ folder });
    await stop();
    writeFileSync(join(folder, 'postgres.password'), 'another');
    await expect(start({ folder })).rejects.toThrow('postgres.password does not match the password of its data');
    rmSync(join(folder, 'postgres.password'));
    await expect(start({ folder })).rejects.toThrow('with its password does not exist');
    expect(listProcesses(folder)).toEqual([]);
  });

  it('damaged data, with the error message of the engine', async () => {
    const folder = folderForTest();
    await start({ folder });
    await stop();
    writeFileSync(join(folder, 'postgres', 'data', 'PG_VERSION'), '9.6\n');
    const started = start({ folder });
    await expect(started).rejects.toMatchObject({ code: 'ENGINE_START_FAILED' });
    await expect(started).rejects.toThrow(/FATAL.*incompatible/);
    expect(listProcesses(folder)).toEqual([]);
  });
});

/** Copies an installation without the links that its install script creates, into a folder of the given mode. */
function copyBuild(mode: number): string {
  const home = join(folderForTest(), 'home');
  mkdirSync(home, { mode: 0o700 });
  const folder = join(home, 'native');
  cpSync(findBinaries().folder, folder, {
    recursive: true,
    verbatimSymlinks: true,
    filter: (source) => !source.endsWith('.a') && !isLink(source),
  });
  chmodSync(home, mode);
  return folder;
}

const isLink = (path: string) => statSync(path, { throwIfNoEntry: false }) !== undefined && linked().has(path);
const linked = () => {
  const { folder } = findBinaries();
  const list = JSON.parse(readFileSync(join(folder, 'pg-symlinks.json'), 'utf8')) as { target: string }[];
  return new Set(list.map(({ target }) => join(folder, ...target.split('/').slice(1))));
};

it('creates the links between libraries if the install script did not run', async () => {
  const build = copyBuild(0o755);
  expect(existsSync(join(build, 'lib', 'libpq.so.5'))).toBe(false);
  chmodSync(join(build, '..', '..'), 0o755);
  const folder = folderForTest();
  const { url } = await start({ folder, build: { folder: build, version: 'test' }, sharedFolders: [] });
  expect(await isUp(url)).toBe(true);
  expect(existsSync(join(build, 'lib', 'libpq.so.5'))).toBe(true);
});

describe.runIf(isLinuxRoot('Postgres as another user'))('as root', () => {
  it('runs as another user in the data folder, without access to its other contents', async () => {
    const folder = folderForTest();
    const { url } = await start({ folder, sharedFolders: [] });
    const data = join(folder, 'postgres', 'data');
    expect(statSync(`/proc/${postmasterPid(data)}`).uid).toBe(65_534);
    expect(statSync(data)).toMatchObject({ uid: 65_534 });
    expect(statSync(data).mode & 0o777).toBe(0o700);
    expect(statSync(folder).mode & 0o777).toBe(0o711);
    expect(await isUp(url)).toBe(true);
  });

  it('uses a copy of the data folder that belongs to root', async () => {
    const folder = folderForTest();
    await askPostgres((await start({ folder })).url, 'CREATE TABLE t AS SELECT 1 AS n');
    await stop();
    const copy = join(folderForTest(), 'copy');
    chmodSync(dirname(copy), 0o755);
    execFileSync('cp', ['-r', folder, copy]);
    expect(statSync(join(copy, 'postgres', 'data', 'base'))).toMatchObject({ uid: 0 });
    expect(await askPostgres((await start({ folder: copy })).url, 'SELECT n FROM t')).toEqual([1]);
  });

  it('refuses a copied data folder whose Postgres data are those of the original, until they are copied too', async () => {
    const shared = join(folderForTest(), 'shared');
    chmodSync(dirname(shared), 0o755);
    const home = folderForTest();
    const folder = join(home, 'data');
    mkdirSync(folder);
    await askPostgres((await start({ folder, sharedFolders: [shared] })).url, 'CREATE TABLE t AS SELECT 1 AS n');
    await stop();
    const original = readFileSync(join(folder, 'postgres.location'), 'utf8').trim();

    const copy = join(home, 'copy');
    execFileSync('cp', ['-r', folder, copy]);
    await expect(start({ folder: copy, sharedFolders: [shared] })).rejects.toThrow(`${original}, which is recorded in`);
    const data = join(shared, 'copy');
    execFileSync('cp', ['-r', original, data]);
    writeFileSync(join(copy, 'postgres.location'), data);
    const { url } = await start({ folder: copy, sharedFolders: [shared] });
    expect(await askPostgres(url, 'SELECT n FROM t')).toEqual([1]);
    await askPostgres(url, 'DROP TABLE t');
    await stop();
    const first = await start({ folder, sharedFolders: [shared] });
    expect(await askPostgres(first.url, 'SELECT n FROM t')).toEqual([1]);
  });

  it('copies program and data out of a home folder of mode 700, reuses the copies, and keeps folders separate', async () => {
    const shared = join(folderForTest(), 'shared');
    chmodSync(join(shared, '..'), 0o755);
    const home = folderForTest();
    const folder = join(home, 'data');
    mkdirSync(folder, { mode: 0o700 });
    const options = { folder, build: { folder: copyBuild(0o700), version: 'test' }, sharedFolders: [shared] };

    const first = await start(options);
    await askPostgres(first.url, 'CREATE TABLE t AS SELECT 1 AS n');
    const place = readFileSync(join(folder, 'postgres.location'), 'utf8').trim();
    expect(place.startsWith(join(shared, 'data-'))).toBe(true);
    expect(statSync(place)).toMatchObject({ uid: 65_534 });
    expect(statSync(place).mode & 0o777).toBe(0o700);
    await stop();

    // An incomplete copy, as after a crash of the machine, is replaced.
    rmSync(join(shared, 'postgres-test', 'bin', 'initdb'));
    writeFileSync(join(shared, 'postgres-test', 'bin', 'postgres'), 'half');
    expect(await askPostgres((await start(options)).url, 'SELECT n FROM t')).toEqual([1]);
    await stop();

    // A new data folder with the same path does not use the old data.
    rmSync(folder, { recursive: true });
    mkdirSync(folder, { mode: 0o700 });
    await expect(askPostgres((await start(options)).url, 'SELECT n FROM t')).rejects.toThrow('does not exist');
    await stop();

    rmSync(shared, { recursive: true });
    await expect(start(options)).rejects.toThrow('does not exist');
  });

  it('does not use a shared folder that another user could have prepared', async () => {
    const shared = join(folderForTest(), 'shared');
    mkdirSync(shared);
    chmodSync(shared, 0o777);
    const folder = join(folderForTest(), 'data');
    mkdirSync(folder);
    await expect(start({ folder, sharedFolders: [shared] })).rejects.toThrow('cannot access any of');
  });
});
