import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdirSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  buildServerConfig,
  buildUsersConfig,
  findLibrary,
  getServerFiles,
} from '../../../infra/embedded/clickhouse/server-files.ts';
import { findFreePorts } from '../../../infra/embedded/free-port.ts';
import { folderForSuite } from '../../folders.ts';
import { until } from '../until.ts';
import { root } from './compose-file.ts';

const owner = { user: 'runlake', password: 'of the owner' };
const grafana = { user: 'grafana', password: 'of the dashboards' };
const folder = folderForSuite();
let url: string;
let server: ChildProcess;

/** Logs that the configuration of the image enables and that grow with each query, part or second. */
const logs = [
  'query_log',
  'query_thread_log',
  'query_views_log',
  'query_metric_log',
  'part_log',
  'text_log',
  'trace_log',
  'metric_log',
  'asynchronous_metric_log',
  'error_log',
  'opentelemetry_span_log',
  'processors_profile_log',
  'asynchronous_insert_log',
  'background_schedule_pool_log',
];
/** A log that our files do not remove: its table shows that this server creates the tables of logs. */
const remainingLog = 'crash_log';

/** This log has no column of the default key. */
const spanLogEngine = '<engine>ENGINE = MergeTree ORDER BY finish_time_us</engine>';

/** Enables the logs in a configuration, as that of the image does. */
function enableLogs(config: string): string {
  const sections = [...logs, remainingLog].map(
    (name) =>
      `<${name}><database>system</database><table>${name}</table>${name === 'opentelemetry_span_log' ? spanLogEngine : ''}</${name}>`,
  );
  return config.replace('</clickhouse>', `${sections.join('')}</clickhouse>`);
}

/** Starts ClickHouse with our configuration files, mounted as in the container. */
beforeAll(async () => {
  const files = getServerFiles(folder);
  writeFileSync(files.config, enableLogs(buildServerConfig(folder, 1024 ** 3, 'test')));
  writeFileSync(files.usersConfigPath, buildUsersConfig(owner.user, owner.password));
  for (const part of ['users', 'config']) {
    mkdirSync(join(folder, `${part}.d`));
    cpSync(new URL(`infra/docker/clickhouse/${part}.d.xml`, root), join(folder, `${part}.d`, 'runlake.xml'));
  }
  const [port] = await findFreePorts(1);
  url = `http://127.0.0.1:${port}/`;
  server = fork(
    fileURLToPath(new URL('infra/embedded/clickhouse/server-child.ts', root)),
    [
      findLibrary(),
      `--path=${files.data}`,
      `--config-file=${files.config}`,
      `--http_port=${port}`,
      '--listen_host=127.0.0.1',
      '--query',
      'SYSTEM START LISTEN HTTP; SELECT sleepEachRow(1) FROM system.numbers SETTINGS max_block_size=1, function_sleep_max_microseconds_per_block=0 FORMAT Null',
    ],
    {
      cwd: folder,
      execArgv: ['--import', pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href],
      env: { LC_ALL: 'C', TZ: 'UTC', GRAFANA_CLICKHOUSE_PASSWORD: grafana.password },
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    },
  );
  await until(
    'ClickHouse',
    () =>
      fetch(`${url}ping`).then(
        ({ ok }) => ok,
        () => false,
      ),
    60_000,
  );
  await ask(owner, 'CREATE DATABASE runlake ENGINE = Atomic');
  for (const table of ['usage_hourly', 'runs']) {
    await ask(owner, `CREATE TABLE runlake.${table} (a Int32) ENGINE = MergeTree ORDER BY a`);
    await ask(owner, `INSERT INTO runlake.${table} VALUES (1)`);
  }
});

afterAll(async () => {
  const gone = server && once(server, 'exit');
  server?.kill('SIGTERM');
  await gone;
});

/** Returns the response of the server, or the number of its exception. */
async function ask({ user, password }: typeof owner, sql: string, settings = ''): Promise<string> {
  const answer = await fetch(`${url}?${settings}`, {
    method: 'POST',
    body: sql,
    headers: { 'X-ClickHouse-User': user, 'X-ClickHouse-Key': password, Connection: 'close' },
  });
  const text = (await answer.text()).trim();
  return answer.ok ? text : `exception ${answer.headers.get('X-ClickHouse-Exception-Code')}`;
}

describe('the Grafana user in ClickHouse', () => {
  it('reads usage counts with the time limit that its client sends', async () => {
    expect(await ask(grafana, 'SELECT a FROM runlake.usage_hourly', 'max_execution_time=20')).toBe('1');
  });

  it.each([
    ['reading traces', 'SELECT * FROM runlake.runs', 'exception 497'],
    ['writing', 'INSERT INTO runlake.usage_hourly VALUES (2)', 'exception 497'],
    ['other servers', "SELECT * FROM url('http://127.0.0.1:1/', CSV, 'a Int32')", 'exception 497'],
  ])('is refused %s', async (_what, sql, answer) => {
    expect(await ask(grafana, sql)).toBe(answer);
  });

  it('has the password from the environment variable', async () => {
    expect(await ask({ ...grafana, password: 'another' }, 'SELECT 1')).toBe('exception 516');
  });
});

it('the server reads our settings: no system log without a bound', async () => {
  expect(await ask(owner, 'SYSTEM FLUSH LOGS')).toBe('');
  const tables = await ask(
    owner,
    "SELECT name FROM system.tables WHERE database = 'system' AND engine LIKE '%MergeTree'",
  );
  expect(tables).toBe(remainingLog);
  expect(
    await ask(owner, "SELECT value FROM system.server_settings WHERE name = 'max_server_memory_usage_to_ram_ratio'"),
  ).toBe('0.8');
});
