import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { openDataFolder } from '../../../infra/embedded/data-folder.ts';
import { startEmbedded } from '../../../infra/embedded/start.ts';
import { folderForTest } from '../../folders.ts';
import { askClickhouse, askPostgres, holdFolder, kill, listProcesses } from './processes.ts';

// Engines start in a second, but take many seconds on a busy machine.
vi.setConfig({ testTimeout: 90_000, hookTimeout: 90_000 });

const both = { clickhouse: true, database: true };

describe('both engines', () => {
  it('keep their data and database names over a stop, and leave no process', async () => {
    const folder = await openDataFolder(folderForTest());
    const first = await startEmbedded({ folder, needs: both });
    await askClickhouse(first.clickhouseUrl ?? '', 'CREATE TABLE t (n UInt8) ENGINE = MergeTree ORDER BY n');
    await askClickhouse(first.clickhouseUrl ?? '', 'INSERT INTO t VALUES (7)');
    await askPostgres(first.databaseUrl ?? '', 'CREATE TABLE t AS SELECT 8 AS n');
    await first.stop();
    expect(listProcesses(folder.path)).toEqual([]);
    expect(await first.exited).toMatchObject({ expected: true });

    const second = await startEmbedded({ folder, needs: both });
    expect(await askClickhouse(second.clickhouseUrl ?? '', 'SELECT n FROM t')).toBe('7');
    expect(await askPostgres(second.databaseUrl ?? '', 'SELECT n FROM t')).toEqual([8]);
    expect(new URL(second.clickhouseUrl ?? '').pathname).toBe('/runlake');
    expect(new URL(second.databaseUrl ?? '').pathname).toBe('/runlake');
    await second.stop();
    await folder.close();
  });

  it('exit after kill -9 of their parent, and the next start has the stored data', async () => {
    const path = folderForTest();
    const held = await holdFolder(path, 'engines');
    expect(held.error).toBeUndefined();
    await askClickhouse(held.clickhouseUrl, 'CREATE TABLE t (n UInt8) ENGINE = MergeTree ORDER BY n');
    await askClickhouse(held.clickhouseUrl, 'INSERT INTO t VALUES (1), (2)');
    await askPostgres(held.databaseUrl, 'CREATE TABLE t AS SELECT generate_series(1, 3) AS n');
    await kill(held.child, 'SIGKILL');

    // The second start is immediate: remaining processes of the first start must not interfere.
    const next = await holdFolder(path, 'engines');
    expect(next.error).toBeUndefined();
    expect(await askClickhouse(next.clickhouseUrl, 'SELECT count() FROM t')).toBe('2');
    expect(await askPostgres(next.databaseUrl, 'SELECT count(*)::int FROM t')).toEqual([3]);
    await kill(next.child, 'SIGKILL');
    await expect.poll(() => listProcesses(path), { timeout: 10_000 }).toEqual([]);
  });

  it('are stopped by the next start if parent and watchdog are killed at the same time', async () => {
    const path = folderForTest();
    const held = await holdFolder(path, 'engines');
    await askPostgres(held.databaseUrl, 'CREATE TABLE t AS SELECT 5 AS n');
    const watchdogs = listProcesses(path).filter((line) => line.includes('watchdog'));
    expect(watchdogs).toHaveLength(1);
    held.child.kill('SIGSTOP');
    process.kill(Number.parseInt(watchdogs[0] ?? '', 10), 'SIGKILL');
    await kill(held.child, 'SIGKILL');
    const orphans = listProcesses(path).filter((line) => line.includes('bin/postgres'));
    expect(orphans).toHaveLength(1);

    const next = await holdFolder(path, 'engines');
    expect(next.error).toBeUndefined();
    expect(await askPostgres(next.databaseUrl, 'SELECT n FROM t')).toEqual([5]);
    const orphan = `${Number.parseInt(orphans[0] ?? '', 10)} `;
    expect(listProcesses(path).filter((line) => line.trim().startsWith(orphan))).toEqual([]);
    await kill(next.child, 'SIGTERM');
    expect(listProcesses(path)).toEqual([]);
  });

  it('leave nothing after a stop by signal, not even run.json', async () => {
    const path = folderForTest();
    const held = await holdFolder(path, 'engines');
    await kill(held.child, 'SIGTERM');
    expect(held.child.exitCode).toBe(0);
    expect(listProcesses(path)).toEqual([]);
  });
});

describe('starts only the needed engines', () => {
  it('one engine alone', async () => {
    const folder = await openDataFolder(folderForTest());
    const engines = await startEmbedded({ folder, needs: { clickhouse: false, database: true } });
    expect(engines.clickhouseUrl).toBeUndefined();
    expect(await askPostgres(engines.databaseUrl ?? '', 'SELECT 1')).toEqual([1]);
    await engines.stop();
    await folder.close();
  });

  it('none', async () => {
    const folder = await openDataFolder(folderForTest());
    const engines = await startEmbedded({ folder, needs: { clickhouse: false, database: false } });
    expect(engines.databaseUrl).toBeUndefined();
    await engines.stop();
    await folder.close();
  });
});

it('stops the other engine if one cannot start, and reports the reason', async () => {
  const path = folderForTest();
  const folder = await openDataFolder(path);
  mkdirSync(join(path, 'clickhouse'));
  // ClickHouse stores the definitions of its tables in this folder.
  mkdirSync(join(path, 'clickhouse', 'data'));
  writeFileSync(join(path, 'clickhouse', 'data', 'metadata'), 'in the way');
  chmodSync(path, 0o711);
  const started = startEmbedded({ folder, needs: both });
  await expect(started).rejects.toMatchObject({ code: 'ENGINE_START_FAILED' });
  await expect(started).rejects.toThrow(/ClickHouse did not start: .*metadata/);
  expect(listProcesses(path)).toEqual([]);
  await folder.close();
});
