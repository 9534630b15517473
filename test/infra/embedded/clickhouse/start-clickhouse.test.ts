import { lstatSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { openClickHouse } from '../../../../infra/clickhouse/client.ts';
import { type EmbeddedClickhouse, startClickhouse } from '../../../../infra/embedded/clickhouse/start-clickhouse.ts';
import { killLeftoverProcess, recordProcess } from '../../../../infra/embedded/process-identity.ts';
import { createLogger, type Logger } from '../../../../infra/telemetry/logger.ts';
import { folderForTest } from '../../../folders.ts';
import { isLinuxRoot } from '../../../house/prerequisites.ts';
import { mountDisk } from '../../full-disk.ts';
import { askClickhouse, listProcesses } from '../processes.ts';

// Engines start in a second, but take many seconds on a busy machine.
vi.setConfig({ testTimeout: 90_000, hookTimeout: 90_000 });

let engine: EmbeddedClickhouse | undefined;
afterEach(async () => {
  await engine?.stop();
  engine = undefined;
});

const serverPid = (folder: string): number =>
  (JSON.parse(readFileSync(join(folder, 'clickhouse', 'process.json'), 'utf8')) as { pid: number }).pid;

it('refuses every client without the password', async () => {
  const folder = folderForTest();
  engine = await startClickhouse({ folder });
  const url = new URL(engine.url);
  await askClickhouse(engine.url, 'CREATE TABLE secret (n UInt8) ENGINE = MergeTree ORDER BY n');

  url.password = 'wrong';
  await expect(askClickhouse(url.href, 'SELECT 1')).rejects.toThrow('AUTHENTICATION_FAILED');
  url.username = 'default';
  url.password = '';
  for (const sql of ['SELECT 1', 'SYSTEM STOP LISTEN HTTP', 'SYSTEM SHUTDOWN', 'KILL QUERY WHERE 1']) {
    await expect(askClickhouse(url.href, sql)).rejects.toThrow('USER_SESSION_LIMIT_EXCEEDED');
  }
  for (const file of ['config.xml', 'users.xml']) {
    expect(statSync(join(folder, 'clickhouse', file)).mode & 0o777).toBe(0o600);
  }
  expect(statSync(join(folder, 'clickhouse')).mode & 0o777).toBe(0o700);
});

it('creates files that other users cannot read', async () => {
  const folder = folderForTest();
  engine = await startClickhouse({ folder });
  await askClickhouse(engine.url, 'CREATE TABLE secret (n UInt8) ENGINE = MergeTree ORDER BY n');
  await askClickhouse(engine.url, 'INSERT INTO secret VALUES (1)');
  const paths = readdirSync(folder, { recursive: true, encoding: 'utf8' }).map((name) => join(folder, name));
  const open = paths.filter((path) => (lstatSync(path).mode & 0o077) !== 0 && !lstatSync(path).isSymbolicLink());
  expect(paths.length).toBeGreaterThan(20);
  expect(open).toEqual([]);
});

it('cannot read local files or connect to other systems', async () => {
  engine = await startClickhouse({ folder: folderForTest() });
  for (const source of ["file('/etc/passwd', LineAsString)", "url('http://127.0.0.1:1/', LineAsString)"]) {
    await expect(askClickhouse(engine.url, `SELECT * FROM ${source}`)).rejects.toThrow('ACCESS_DENIED');
  }
});

it('has the given settings', async () => {
  engine = await startClickhouse({ folder: folderForTest(), memoryLimitBytes: 1_500_000_000 });
  const setting = (name: string) => `SELECT value FROM system.server_settings WHERE name = '${name}'`;
  expect(await askClickhouse(engine.url, setting('max_server_memory_usage'))).toBe('1500000000');
  expect(await askClickhouse(engine.url, 'SELECT timezone()')).toBe('UTC');
  expect(await askClickhouse(engine.url, "SELECT engine FROM system.databases WHERE name = 'runlake'")).toBe('Atomic');
  expect(await askClickhouse(engine.url, "SELECT count() FROM system.tables WHERE name = 'query_log'")).toBe('0');
  const ofParts = `SELECT name, value FROM system.merge_tree_settings WHERE name IN ('auto_statistics_types', 'string_serialization_version') ORDER BY name`;
  expect(await askClickhouse(engine.url, ofParts)).toBe(
    'auto_statistics_types\t\nstring_serialization_version\tsingle_stream',
  );
});

it.runIf(isLinuxRoot('a full disk'))('returns complete results while its disk is full', async () => {
  const disk = mountDisk(64);
  try {
    engine = await startClickhouse({ folder: disk.folder });
    const clickhouse = openClickHouse({ url: engine.url, logger: createLogger('silent', 'test'), timeoutMs: 30_000 });
    try {
      disk.fill();
      await expect(clickhouse.query({ name: 'test', sql: 'SELECT 1 AS n' })).resolves.toEqual([{ n: 1 }]);
      const sql = "SELECT repeat('a', 1000) FROM numbers(20000)";
      const text = await clickhouse.queryText({ name: 'test', sql, format: 'TSV' });
      expect(text).toHaveLength(20_000 * 1_001);
    } finally {
      await clickhouse.close();
    }
    await engine.stop();
  } finally {
    disk.remove();
  }
});

it.runIf(isLinuxRoot('a full disk'))('restarts after a crash on a full disk when there is space again', async () => {
  const disk = mountDisk(64);
  try {
    const failed = vi.fn();
    const logger = { ...createLogger('silent', 'test'), error: failed } as unknown as Logger;
    engine = await startClickhouse({ folder: disk.folder, logger });
    const { url } = engine;
    await askClickhouse(url, 'CREATE TABLE t (n UInt8) ENGINE = MergeTree ORDER BY n');
    process.kill(serverPid(disk.folder), 'SIGKILL');
    const restarts = () => failed.mock.calls.filter(([, message]) => String(message).includes('failed to restart'));
    await expect
      .poll(
        () => {
          disk.fill();
          return restarts().length;
        },
        { interval: 10, timeout: 20_000 },
      )
      .toBeGreaterThan(0);
    disk.free();
    const isOnlyServerRecorded = () => {
      const [pid, ...others] = listProcesses(disk.folder).map((line) => Number.parseInt(line, 10));
      return others.length === 0 && pid === serverPid(disk.folder);
    };
    const read = () => askClickhouse(url, 'SELECT count() FROM t').catch(() => 'down');
    await expect.poll(async () => [await read(), isOnlyServerRecorded()], { timeout: 30_000 }).toEqual(['0', true]);
    await engine.stop();
  } finally {
    disk.remove();
  }
});

it('restarts on the same address with its data after a crash', async () => {
  const folder = folderForTest();
  engine = await startClickhouse({ folder });
  const { url } = engine;
  await askClickhouse(url, 'CREATE TABLE t (n UInt8) ENGINE = MergeTree ORDER BY n');
  await askClickhouse(url, 'INSERT INTO t VALUES (1)');
  const crashed = serverPid(folder);
  process.kill(crashed, 'SIGKILL');
  await expect
    .poll(() => askClickhouse(url, 'SELECT count() FROM t').catch(() => 'down'), { timeout: 20_000 })
    .toBe('1');
  await expect.poll(() => serverPid(folder)).not.toBe(crashed);
});

it('reports the signal that ended it, not a line of its stack', async () => {
  const folder = folderForTest();
  const failed = vi.fn();
  const logger = { ...createLogger('silent', 'test'), error: failed } as unknown as Logger;
  engine = await startClickhouse({ folder, logger });
  const running = askClickhouse(engine.url, 'SELECT\n  sleepEachRow(1)\nFROM numbers(30)').catch(() => undefined);
  process.kill(serverPid(folder), 'SIGSEGV');
  await expect
    .poll(() => failed.mock.calls[0]?.[0], { timeout: 20_000 })
    .toMatchObject({ engine: 'ClickHouse', reason: expect.stringMatching(/Signal description: Segmentation fault$/) });
  await running;
});

describe('a server that does not respond is restarted on the same address with its data', () => {
  it.each([
    ['it stopped listening', () => askClickhouse(engine?.url ?? '', 'SYSTEM STOP LISTEN HTTP')],
    ['its process is suspended', (folder: string) => process.kill(serverPid(folder), 'SIGSTOP')],
  ])('%s', async (_, silence) => {
    const folder = folderForTest();
    const times = { probeIntervalMs: 100, probeTimeoutMs: 2_000, stopTimeoutMs: 2_000 };
    engine = await startClickhouse({ folder, times });
    const { url } = engine;
    await askClickhouse(url, 'CREATE TABLE t (n UInt8) ENGINE = MergeTree ORDER BY n');
    await askClickhouse(url, 'INSERT INTO t VALUES (1)');
    const silenced = serverPid(folder);
    await silence(folder);
    await expect.poll(() => serverPid(folder), { timeout: 80_000 }).not.toBe(silenced);
    await expect
      .poll(() => askClickhouse(url, 'SELECT count() FROM t').catch(() => 'down'), { timeout: 20_000 })
      .toBe('1');
  });
});

it('does not restart if it is stopped while it is down after a crash', async () => {
  const folder = folderForTest();
  const crashing = await startClickhouse({ folder });
  process.kill(serverPid(folder), 'SIGKILL');
  await crashing.stop();
  expect(await crashing.exited).toMatchObject({ expected: true });
  expect(listProcesses(folder)).toEqual([]);
});

it('reports the error message of the engine if it cannot start', async () => {
  const folder = folderForTest();
  mkdirSync(join(folder, 'clickhouse', 'data', 'status'), { recursive: true });
  const started = startClickhouse({ folder });
  await expect(started).rejects.toMatchObject({ code: 'ENGINE_START_FAILED' });
  await expect(started).rejects.toThrow(/ClickHouse did not start: .*Exception.*status/);
  expect(listProcesses(folder)).toEqual([]);
});

it('does not kill a process that reuses the id of an earlier server, and ignores a damaged process file', async () => {
  const path = join(folderForTest(), 'process.json');
  recordProcess(path, process.pid);
  const own = JSON.parse(readFileSync(path, 'utf8')) as { pid: number; identity: string };
  writeFileSync(path, JSON.stringify({ ...own, identity: `${own.identity}0` }));
  await killLeftoverProcess(path);
  writeFileSync(path, '[');
  await killLeftoverProcess(path);
});
