import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { builtCommand, builtProgram } from '../../../built-program.ts';
import { folderForSuite, folderForTest } from '../../../folders.ts';
import { forSuite } from '../../../for-suite.ts';
import { pickSome } from '../../../house/extent.ts';
import { openTcpProxy } from '../../../infra/tcp-proxy.ts';
import { until } from '../../../infra/until.ts';
import { startRunlake } from '../../../runlake-process.ts';
import { testSettings } from '../../../test-settings.ts';

const dayMs = 86_400_000;
const midnightMs = Math.floor(Date.now() / dayMs) * dayMs;
const day = (days: number) => new Date(midnightMs + days * dayMs).toISOString().slice(0, 10);
const newId = () => crypto.randomUUID();

const root = folderForSuite();
const environment = () => ({ RUNLAKE_DATA_DIR: runlake.dataDir, RUNLAKE_LOCAL_EXPORT_ROOT: root });
const command = (line: string, more: readonly string[] = []) =>
  builtCommand(['export', ...line.split(' '), ...more], environment());
const post = (path: string, body: object, headers: object = {}) =>
  fetch(`${runlake.url}/api/v1${path}`, {
    method: 'POST',
    headers: { 'x-api-key': runlake.apiKey, 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });

/** Replaces the work folder with a file while `work` runs, so that every attempt fails regardless of privileges. */
async function replaceWorkFolder(work: () => Promise<void>): Promise<void> {
  const [name = ''] = readdirSync(join(runlake.dataDir, 'exports'));
  const folder = join(runlake.dataDir, 'exports', name);
  rmSync(folder, { recursive: true });
  writeFileSync(folder, '');
  try {
    await work();
  } finally {
    rmSync(folder);
    mkdirSync(folder);
  }
}

const runlake = forSuite(() =>
  startRunlake({
    environment: {
      RUNLAKE_LOCAL_EXPORT_ROOT: root,
      RUNLAKE_EXPORT_RETRIES: '2',
      RUNLAKE_ALLOW_DEFAULT_CREDENTIALS: 'false',
      ...testSettings({ exportRetryDelayMs: 4_000, exportSweepMs: 500 }),
    },
  }),
);
beforeAll(async () => {
  const runs = [-2, -1, -1].map((days, index) => ({
    id: newId(),
    name: `run ${index}`,
    run_type: 'chain',
    session_name: 'shop',
    inputs: {},
    start_time: new Date(midnightMs + days * dayMs + 3_600_000).toISOString(),
  }));
  for (const run of runs) expect((await post('/runs', run)).status).toBe(202);
  const made = await command('destinations create --name disk --type local --prefix disk');
  expect(made.code, made.errors).toBe(0);
});

const createAllDays = () => `create --project shop --start ${day(-3)} --end ${day(0)}`;

describe('runlake export', () => {
  it('prints help with examples', async () => {
    for (const words of [['--help'], ['create', '--help'], ['watch', '--help'], ['destinations', 'create', '--help']]) {
      const { code, output } = await builtCommand(['export', ...words], {});
      expect(code).toBe(0);
      expect(output).toContain('runlake export');
    }
  });

  it('creates an export, shows its progress, and prints where its files are', async () => {
    const { code, output, errors } = await command(`${createAllDays()} --destination disk --watch`);
    expect(code, output + errors).toBe(0);
    const [, id = ''] = /^Export (\S+) of shop$/m.exec(output) ?? [];
    expect(output).toMatch(/^100 % {2}3 of 3 rows {2}3 of 3 days {2}\S+ k?B {2}\S+ rows\/s$/m);
    expect(output).toMatch(/^COMPLETED in \S+ s: 3 rows in 2 files, \S+ k?B\.$/m);
    const [, folder = ''] = /^Files: (.*)$/m.exec(output) ?? [];
    expect(folder).toContain(`disk/export_id=${id}/`);
    expect(existsSync(join(root, folder, '_manifest.json'))).toBe(true);
  });

  it('prints only the id on standard output, and with --json the response of the API', async () => {
    const { output, errors } = await command(`${createAllDays()} --destination disk --fields`, ['id, name']);
    expect(output).toMatch(/^[0-9a-f-]{36}\n$/);
    const id = output.trim();
    expect(errors).toContain(`runlake export watch ${id}`);

    const watched = await command(`watch ${id} --json`);
    expect(watched.code).toBe(0);
    const last = JSON.parse(watched.output.trim().split('\n').at(-1) ?? '');
    const answer = await fetch(`${runlake.url}/api/v1/bulk-exports/${id}`, {
      headers: { 'x-api-key': runlake.apiKey },
    });
    expect(last).toEqual(await answer.json());
    expect(last).toMatchObject({ status: 'COMPLETED', export_fields: ['id', 'name'], progress: { rows_written: 3 } });
  });

  it('exports only the runs that match a filter, and refuses an invalid one', async () => {
    const filter = 'in(name, ["run 1", "run 2"])';
    const made = await command(`${createAllDays()} --destination disk --json --filter`, [filter]);
    expect(made.code, made.errors).toBe(0);
    const { id, filter: stored } = JSON.parse(made.output);
    expect(stored).toBe(filter);
    const watched = await command(`watch ${id} --json`);
    expect(JSON.parse(watched.output.trim().split('\n').at(-1) ?? '')).toMatchObject({
      status: 'COMPLETED',
      progress: { rows_written: 2 },
    });
    const invalid = await command(`${createAllDays()} --destination disk --filter`, ['eq(nme, "run 1")']);
    expect([invalid.code, invalid.output]).toEqual([1, '']);
    expect(invalid.errors).toMatch(/Invalid filter at character 4: .*did you mean/);
  });

  it('refuses a name that a destination has, and deletes a destination that no unfinished export uses', async () => {
    const create = 'destinations create --name spare --type local --prefix spare';
    const made = await command(create);
    const id = made.output.trim();
    expect(made.code, made.errors).toBe(0);
    const again = await command(create);
    expect(again).toMatchObject({ code: 1, output: '' });
    expect(again.errors).toContain(`A destination has the name 'spare' already: ${id}.`);

    const remove = 'destinations delete spare';
    const schedule = await command(`create --project shop --destination spare --start ${day(0)} --interval-hours 168`);
    const refused = await command(remove);
    expect(refused).toMatchObject({ code: 1, output: '' });
    expect(refused.errors).toContain('The destination is in use by 1 unfinished export(s).');
    await command(`cancel ${schedule.output.trim()}`);
    // The first export of the schedule may have been created.
    await until('the deletion', async () => (await command(remove)).code === 0);
    expect((await command('destinations list')).output).not.toContain('spare');
    expect((await command(remove)).errors).toContain("id 'spare'. Names: disk.");
    const next = (await command(create)).output.trim();
    expect((await command(`destinations delete ${next}`)).output).toContain(
      `The destination spare (${next}) is deleted`,
    );
  });

  it('accepts ids instead of names', async () => {
    const { output: lines } = await command('destinations list --json');
    const disk = lines
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line))
      .find(({ display_name: name }) => name === 'disk');
    const { output } = await command(`${createAllDays()} --destination ${disk.id} --json`);
    const made = JSON.parse(output);
    expect(made.bulk_export_destination_id).toBe(disk.id);
    const again = await command(
      `create --project ${made.session_id} --destination ${disk.id} --start ${day(-1)} --end ${day(0)} --watch --json`,
    );
    expect(again.code).toBe(0);
    const progressLines = again.output.trim().split('\n');
    expect(progressLines.length).toBeGreaterThan(1);
    expect(JSON.parse(progressLines.at(-1) ?? '')).toMatchObject({
      status: 'COMPLETED',
      progress: { rows_written: 2 },
    });
  });

  const faultyLines: readonly (readonly [string, string])[] = [
    ['create --project shopp --destination disk --start 2026-01-01 --end 2026-01-02', "id 'shopp'. Names: shop."],
    ['create --project shop --destination dusk --start 2026-01-01 --end 2026-01-02', "id 'dusk'. Names: disk."],
    ['create --project shop --destination disk --start soon --end 2026-01-02', '--start must be a time such as'],
    [
      'create --project shop --destination disk --start 2026-01-01',
      'Specify --end, or --interval-hours for a schedule',
    ],
    [
      'create --project shop --destination disk --start 2026-01-02 --end 2026-01-01',
      '--end: must be later than --start',
    ],
    ['create --project shop --destination disk --start 2026-01-01 --interval-hours 169', 'from 1 to 168'],
    ['create --project shop --destination disk --start 2026-01-01 --interval-hours 1 --watch', 'a schedule never ends'],
    [
      'create --project shop --destination disk --start 2026-01-01 --end 2026-01-02 --fields id,nme',
      "--fields: unknown field 'nme'",
    ],
    [
      'create --project shop --destination disk --start 2026-01-01 --end 2026-01-02 --compression lz4',
      'Allowed choices are none',
    ],
    ['create --project shop --start 2026-01-01', "required option '--destination"],
    [
      'create --project shop --destination disk --start 2026-01-01 --end 2026-01-02 --workspace x',
      "id 'x'. Names: Default",
    ],
    ['watch nothing', 'No export nothing. See `runlake export list`'],
    ['cancel 00000000-0000-4000-8000-000000000000', 'No export 0000'],
    ['list --limit 0', '--limit must be a number from 1 to 1000'],
    ['list --source x', '--source must be the id'],
    ['destinations create --name disk2 --type local --prefix ..', "contains '.' or '..'"],
    ['destinations create --name a/b --type local', '--name must match'],
    ['destinations create --name bucket', 'Specify --bucket, or --type local'],
    ['destinations create --name bucket --bucket ab', '--bucket must not have fewer than 3'],
    ['destinations create --name bucket --bucket=', '--bucket is empty'],
    ['destinations create --name= --type local', '--name is empty'],
  ];
  it.each(pickSome(faultyLines, 1 / 3))('%s: reports the error', async (line, words) => {
    const { code, output, errors } = await command(line);
    expect(errors).toContain(words);
    expect(code).toBe(1);
    expect(output).toBe('');
    expect(errors).not.toMatch(/^ {4}at /m);
  });
});

describe('credentials', () => {
  it('are required if the instance does not allow those of the environment', async () => {
    const words = ['export', 'destinations', 'create', '--name', 'bucket', '--bucket', 'some-bucket'];
    const end = await builtCommand(words, environment());
    expect(end).toMatchObject({ code: 1, output: '', errors: expect.stringContaining('Specify --credentials-stdin') });
  });

  it('are not sealed with a key that the instance does not have', async () => {
    const key = join(runlake.dataDir, 'secret.key');
    renameSync(key, `${key}.kept`);
    const end = await command('destinations create --name sealed --type local --prefix sealed');
    const isCreated = existsSync(key);
    renameSync(`${key}.kept`, key);
    expect(end).toMatchObject({ code: 1, output: '', errors: expect.stringContaining('Set RUNLAKE_SECRET_KEY') });
    expect(isCreated).toBe(false);
  });

  const createBucket = async (input: string) => {
    const words = 'export destinations create --name bucket --bucket some-bucket --credentials-stdin --endpoint';
    const child = spawn(process.execPath, [builtProgram, ...words.split(' '), 'http://127.0.0.1:9'], {
      env: { PATH: process.env.PATH, ...environment() },
    });
    let output = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (output += chunk));
    child.stdin.end(input);
    const [code] = await once(child, 'close');
    return { code, output };
  };

  it.each([
    ['no JSON', 'Standard input is not JSON'],
    ['{"access_key_id": "some-id"}', 'The destination is not valid: credentials'],
    ['{"access_key_id": "some-id", "secret_access_key": "some-secret"}', 'RUNLAKE_ALLOW_PRIVATE_ENDPOINTS'],
  ])('from standard input: %s', async (input, words) => {
    const { code, output } = await createBucket(input);
    expect(code).toBe(1);
    expect(output).toContain(words);
    expect(output).not.toContain('some-secret');
  });
});

describe('an export that fails', () => {
  it('prints each failed attempt, and at the end the errors of each day', () =>
    replaceWorkFolder(async () => {
      const { code, output } = await command(`${createAllDays()} --destination disk --watch`);
      expect(code).toBe(1);
      expect(output).toMatch(new RegExp(`^${day(-2)}: attempt 1 failed, retrying: \\S`, 'm'));
      expect(output).toMatch(/^FAILED in \S+ s: 0 rows in 0 files, 0 B\.$/m);
      expect(output).toMatch(/^ {2}\d{4}-\d\d-\d\d FAILED, 3 attempts failed:$/m);
      expect(output).toMatch(/^ {4}attempts 1 to 3: The work file .* cannot be written/m);
    }));

  it('continues if Ctrl-C ends the watch, and can be cancelled', () =>
    replaceWorkFolder(async () => {
      const watching = spawn(
        process.execPath,
        [builtProgram, 'export', ...createAllDays().split(' '), '--destination', 'disk', '--watch'],
        { env: { PATH: process.env.PATH, ...environment() }, stdio: ['ignore', 'pipe', 'inherit'] },
      );
      let output = '';
      let interrupted = false;
      watching.stdout.on('data', (chunk) => {
        output += chunk;
        // Only once: the second Ctrl-C terminates the process immediately.
        if (output.includes('attempt 1 failed') && !interrupted) interrupted = watching.kill('SIGINT');
      });
      const [code] = await once(watching, 'close');
      expect(code, output).toBe(130);
      const [, id = ''] = /The export continues. To watch it again: runlake export watch (\S+)/.exec(output) ?? [];

      const cancelled = await command(`cancel ${id}`);
      expect(cancelled.output).toBe(`The export ${id} is cancelled; 0 finished files stay (0 rows).\n`);
      expect((await command('list --status CANCELLED')).output).toContain(id);
      const watched = await command(`watch ${id}`);
      expect(watched.code).toBe(1);
      expect(watched.output).toContain('CANCELLED');
    }));
});

describe('watching', () => {
  it('reports that the stores do not respond, and continues when they respond again', async () => {
    const stores = new URL(runlake.stores().databaseUrl);
    const proxy = await openTcpProxy(stores.hostname, Number(stores.port));
    stores.port = String(proxy.port);
    const { output } = await command('create --project shop --destination disk --start 2001-01-01 --end 2010-12-31');
    const id = output.trim();
    const watching = spawn(process.execPath, [builtProgram, 'export', 'watch', id], {
      env: { PATH: process.env.PATH, ...environment(), RUNLAKE_DATABASE_URL: stores.href },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    let progress = '';
    watching.stdout.on('data', (chunk) => (progress += chunk));
    const ended = once(watching, 'close');
    onTestFinished(async () => {
      watching.kill('SIGKILL');
      await proxy.close();
    });
    await until('the progress is shown', () => progress.includes(' days  '), 60_000);
    proxy.breakAfter(0);
    await until('the outage is reported', () => progress.includes('The stores do not answer'), 60_000);
    proxy.breakAfter(Number.POSITIVE_INFINITY);
    await command(`cancel ${id}`);
    expect(await ended).toEqual([1, null]);
    expect(progress.match(/The stores do not answer/g)).toHaveLength(1);
    expect(progress).toMatch(/^CANCELLED in /m);
  });
});

describe('schedules', () => {
  it('are listed separately with the exports they create, and can be cancelled', async () => {
    const { output } = await command(`create --project shop --destination disk --start ${day(-2)} --interval-hours 24`);
    const id = output.trim();
    await expect
      .poll(async () => (await command(`list --source ${id} --json`)).output.trim().split('\n').length, {
        timeout: 30_000,
      })
      .toBe(2);
    const { output: schedules } = await command('list --schedules');
    expect(schedules).toMatch(new RegExp(`^${id}  RUNNING every 24 h +shop +disk `, 'm'));
    expect((await command(`watch ${id}`)).errors).toContain('is a schedule. Watch one of its exports');
    expect((await command(`cancel ${id}`)).output).toContain('exports that it created continue');
  });
});

it('a local destination is below the root of the instance, also if the environment of the command has another', async () => {
  const other = folderForTest();
  for (const [name, environment] of [
    ['none', {}],
    ['other', { RUNLAKE_LOCAL_EXPORT_ROOT: other }],
  ] as const) {
    const words = ['export', 'destinations', 'create', '--name', name, '--type', 'local', '--prefix', name];
    const made = await builtCommand(words, { RUNLAKE_DATA_DIR: runlake.dataDir, ...environment });
    expect(made.code, made.errors).toBe(0);
    expect(existsSync(join(root, name))).toBe(true);
  }
  expect(readdirSync(other)).toEqual([]);
});

it('a local destination without the folder of the root is refused with the path of the folder', async () => {
  renameSync(root, `${root}-away`);
  onTestFinished(() => renameSync(`${root}-away`, root));
  const { code, errors } = await command('destinations create --name lost --type local');
  expect(errors).toContain(`The folder '${root}' of RUNLAKE_LOCAL_EXPORT_ROOT does not exist.`);
  expect(errors).not.toContain('bucket');
  expect(code).toBe(1);
});

describe('several workspaces', () => {
  it('require --workspace', async () => {
    const made = await post('/workspaces', { display_name: 'Second' });
    const { id } = (await made.json()) as { id: string };
    const run = { id: newId(), name: 'there', run_type: 'chain', session_name: 'shop', inputs: {} };
    expect((await post('/runs', run, { 'x-tenant-id': id })).status).toBe(202);

    const withoutWorkspace = await command(`${createAllDays()} --destination disk`);
    expect(withoutWorkspace.errors).toContain('There are several workspaces. Specify --workspace: Default, Second.');
    const none = await command(`${createAllDays()} --destination disk --workspace Second`);
    expect(none.errors).toContain('The workspace Second has no destinations');
    const destination = await command(
      'destinations create --name disk --type local --prefix second --workspace Second',
    );
    expect(destination.code, destination.errors).toBe(0);
    const line = `create --project shop --destination disk --start ${day(0)} --end ${day(1)}`;
    const secondWorkspaceResult = await command(`${line} --workspace ${id} --watch`);
    expect(secondWorkspaceResult.code, secondWorkspaceResult.output + secondWorkspaceResult.errors).toBe(0);
    expect(secondWorkspaceResult.output).toContain('1 of 1 rows');

    expect((await command('list')).output).toMatch(/^ID +STATUS +WORKSPACE +PROJECT/);
    const [heads, ...rows] = (await command('list --workspace Second')).output.trim().split('\n');
    expect(heads).not.toContain('WORKSPACE');
    expect(rows).toHaveLength(1);
    expect(readdirSync(join(root, 'second')).filter((name) => name.startsWith('export_id='))).toHaveLength(1);
  });
});
