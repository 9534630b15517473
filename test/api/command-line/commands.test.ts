import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, writeFileSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { builtCommand, builtProgram } from '../../built-program.ts';
import { folderForSuite, folderForTest } from '../../folders.ts';
import { deferred } from '../../infra/deferred.ts';
import { listenOnLoopback } from '../../infra/listen-on-loopback.ts';
import { type RunlakeProcess, startRunlake } from '../../runlake-process.ts';

const folder = folderForSuite();

const command = (words: readonly string[], environment: Record<string, string> = {}) =>
  builtCommand(words, { RUNLAKE_DATA_DIR: folder, ...environment });

describe('runlake', () => {
  it('reports an unknown command', async () => {
    const { code, output, errors } = await command(['dcotor']);
    expect(code).toBe(1);
    expect(errors).toContain("unknown command 'dcotor'");
    expect(output).toBe('');
  });

  it('lists its commands', async () => {
    const { code, output } = await command(['--help']);
    expect(code).toBe(0);
    for (const name of ['all', 'api', 'ingest', 'migrate', 'config', 'doctor', 'keys', 'members', 'organizations'])
      expect(output).toMatch(new RegExp(`^  ${name} `, 'm'));
  });

  it('ends without a message if the reader of its output has ended', async () => {
    const child = spawn(process.execPath, [builtProgram, 'doctor'], {
      env: { PATH: process.env.PATH, RUNLAKE_DATA_DIR: folder },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    child.stdout.destroy();
    let errors = '';
    child.stderr.on('data', (chunk) => (errors += chunk));
    await once(child, 'close');
    expect(errors).toBe('');
  });

  it.each(['api', 'ingest'])('%s reports which addresses it needs', async (role) => {
    const { code, errors } = await command([role]);
    expect(code).toBe(1);
    for (const name of ['KAFKA_BROKERS', 'SCHEMA_REGISTRY_URL', 'CLICKHOUSE_URL', 'DATABASE_URL'])
      expect(errors).toContain(`RUNLAKE_${name}`);
  });

  it.each(['doctor', 'migrate', 'keys list', 'members list'])(
    '%s reports that no process is running',
    async (words) => {
      const { code, output, errors } = await command(words.split(' '));
      expect(code).toBe(1);
      expect(output + errors).toContain(`No runlake process is running on the data folder ${folder}`);
      expect(output + errors).not.toMatch(/^ {4}at /m);
    },
  );

  it.each([
    ['keys revoke mine', "runlake: 'mine' is not a key id. See `runlake keys list`.\n"],
    [`keys revoke ${'a'.repeat(36)}`, `runlake: '${'a'.repeat(36)}' is not a key id. See \`runlake keys list\`.\n`],
    ['dlq list --limit 0', "runlake: --limit must be a number from 1 to 1000, not '0'.\n"],
    ['export list --source mine', "runlake: --source must be the id of a schedule, not 'mine'.\n"],
  ])('%s reports what to correct, without the remedy of a request', async (words, text) => {
    const { code, errors } = await command(words.split(' '));
    expect([code, errors]).toEqual([1, text]);
  });

  it('reports a port in use before it starts engines', async () => {
    const server = createServer();
    const port = await listenOnLoopback(server);
    const { code, errors } = await command(['all'], { RUNLAKE_PORT: String(port) });
    server.close();
    expect(code).toBe(1);
    expect(errors).toBe(
      `runlake: Port ${port} on 127.0.0.1 is in use.\nStop the program that listens there, or set RUNLAKE_PORT.\n`,
    );
    expect(existsSync(join(folder, 'clickhouse'))).toBe(false);
  });
});

describe('a start with a Redis that does not respond', () => {
  it('stops at the first signal and leaves no process running', { timeout: 60_000 }, async () => {
    const { promise: asked, resolve: reached } = deferred();
    const sockets = new Set<Socket>();
    const silent = createServer((socket) => {
      sockets.add(socket);
      reached();
    });
    const port = await listenOnLoopback(silent);
    const dataDir = folderForTest();
    const env = {
      PATH: process.env.PATH,
      RUNLAKE_DATA_DIR: dataDir,
      RUNLAKE_PORT: '0',
      RUNLAKE_TOOLS_PORT: '0',
      RUNLAKE_REDIS_URL: `redis://127.0.0.1:${port}`,
    };
    const child = spawn(process.execPath, [builtProgram, 'all'], { env, stdio: 'ignore' });
    const exited = once(child, 'exit');
    onTestFinished(() => {
      child.kill('SIGKILL');
      for (const socket of sockets) socket.destroy();
      silent.close();
    });
    await Promise.race([asked, exited]);
    const signalledMs = performance.now();
    child.kill('SIGINT');
    expect(await exited).toEqual([130, null]);
    expect(performance.now() - signalledMs).toBeLessThan(8_000);
    expect(existsSync(join(dataDir, 'postgres', 'postmaster.pid'))).toBe(false);
  });
});

describe('a first start that fails after it has created the admin key', () => {
  it('prints the key', { timeout: 120_000 }, async () => {
    const dataDir = folderForTest();
    const projectDir = folderForTest();
    const environment = {
      RUNLAKE_DATA_DIR: dataDir,
      RUNLAKE_PORT: '0',
      RUNLAKE_TOOLS_PORT: '0',
      RUNLAKE_AGENTS_PORT: '0',
      RUNLAKE_AGENTS_FILE: join(projectDir, 'langgraph.json'),
    };
    const project = { graphs: { trip: './trip.js:graph' }, auth: { path: './missing.js:auth' } };
    writeFileSync(environment.RUNLAKE_AGENTS_FILE, JSON.stringify(project));
    const { code, output, errors } = await command(['all'], environment);
    expect(errors).toContain('missing.js');
    expect(output).toMatch(/^Admin key, shown this once: rlk_\S+$/m);
    expect(code).toBe(1);
  });
});

describe('a first start without an operator key', () => {
  let runlake: RunlakeProcess;
  beforeAll(async () => {
    runlake = await startRunlake({ environment: { RUNLAKE_BOOTSTRAP_API_KEY: '' } });
  });
  afterAll(() => runlake?.remove());

  it('prints a key once, with instructions', async () => {
    const read = () => /Admin key, shown this once: (\S+)/.exec(runlake.output())?.[1];
    await expect.poll(read, { timeout: 10_000 }).toMatch(/^rlk_/);
    const key = String(read());
    await expect.poll(() => runlake.output()).toContain(`LANGSMITH_ENDPOINT=${runlake.url} LANGSMITH_API_KEY=${key}`);
    const answer = await fetch(`${runlake.url}/api/v1/sessions`, { headers: { 'x-api-key': key } });
    expect(answer.status).toBe(200);
    runlake = await runlake.restart();
    expect(runlake.output()).not.toContain('key');
  });

  it('lists keys in columns', async () => {
    const { output } = await command(['keys', 'list'], { RUNLAKE_DATA_DIR: runlake.dataDir });
    const [heads = '', ...rows] = output.trim().split('\n');
    expect(heads.split(/ {2,}/)).toEqual(['ID', 'KEY', 'USER', 'REACHES', 'MAY', 'DESCRIPTION']);
    expect(rows).toHaveLength(1);
    const cells = rows[0]?.split(/ {2,}/).slice(2);
    expect(cells).toEqual(['admin@runlake.local', 'whole organisation', 'everything', 'Bootstrap admin key']);
    expect(rows[0]?.indexOf('admin@')).toBe(heads.indexOf('USER'));
  });

  it('lists members, and removes one with the keys of that member', async () => {
    const environment = { RUNLAKE_DATA_DIR: runlake.dataDir };
    const created = await command(['keys', 'create', '--email', 'Ana@acme.example'], environment);
    const ask = () => fetch(`${runlake.url}/api/v1/sessions`, { headers: { 'x-api-key': created.output.trim() } });
    expect((await ask()).status).toBe(200);
    const { output } = await command(['members', 'list'], environment);
    const [heads = '', ...rows] = output.trim().split('\n');
    expect(heads.split(/ {2,}/)).toEqual(['ID', 'EMAIL', 'NAME', 'ADDED']);
    expect(rows.map((row) => row.trim().split(/ {2,}/)[1])).toEqual(['admin@runlake.local', 'Ana@acme.example']);
    const removed = await command(['members', 'remove', 'ana@ACME.example'], environment);
    expect(removed).toMatchObject({ code: 0, output: expect.stringContaining('Ana@acme.example is removed') });
    await expect.poll(async () => (await ask()).status, { timeout: 10_000 }).toBe(401);
    expect((await command(['members', 'list'], environment)).output).not.toContain('acme.example');
    expect((await command(['keys', 'list'], environment)).output).not.toContain('acme.example');
    const unknown = await command(['members', 'remove', 'ana@acme.example'], environment);
    expect(unknown).toMatchObject({ code: 1, errors: expect.stringContaining("No member 'ana@acme.example'") });
    const last = await command(['members', 'remove', 'admin@runlake.local'], environment);
    expect(last).toMatchObject({ code: 1, errors: expect.stringContaining('No other member has a key') });
  });

  it('refuses a destination that the instance would refuse, whatever the environment of the command', async () => {
    const environment = { RUNLAKE_DATA_DIR: runlake.dataDir, RUNLAKE_LOCAL_EXPORT_ROOT: folder };
    const words = 'export destinations create --name disk --type local --prefix refused'.split(' ');
    const { code, output, errors } = await command(words, environment);
    expect([code, output]).toEqual([1, '']);
    expect(errors).toContain("Destinations of type 'local' are disabled.");
    expect(existsSync(join(folder, 'refused'))).toBe(false);
  });

  it('manages keys and members of another organisation with --in', async () => {
    const environment = { RUNLAKE_DATA_DIR: runlake.dataDir };
    const created = await command(['organizations', 'create', 'Beta', '--email', 'bo@beta.example'], environment);
    const [, id = ''] = /^Organisation (\S+)/m.exec(created.errors) ?? [];
    const key = await command(['keys', 'create', '--in', id, '--description', 'second of Beta'], environment);
    expect(key.errors).toContain('(second of Beta) for bo@beta.example');
    const answer = await fetch(`${runlake.url}/api/v1/sessions`, { headers: { 'x-api-key': key.output.trim() } });
    expect(answer.status).toBe(200);
    const { output } = await command(['keys', 'list', '--in', id], environment);
    expect(output).toContain('second of Beta');
    expect(output).not.toContain('Bootstrap admin key');
    expect((await command(['keys', 'list'], environment)).output).not.toContain('second of Beta');
    expect((await command(['members', 'list', '--in', id], environment)).output).toContain('bo@beta.example');
    expect((await command(['members', 'list', '--in', 'Beta'], environment)).output).toContain('bo@beta.example');
    for (const unknown of ['nonsense', '00000000-0000-4000-8000-000000000000']) {
      const { code, errors } = await command(['members', 'list', '--in', unknown], environment);
      expect(code).toBe(1);
      expect(errors).toContain(`No organisation has the name or id '${unknown}'. Names: `);
    }
    const second = await command(['organizations', 'create', 'Beta', '--email', 'bea@beta.example'], environment);
    const [, secondId = ''] = /^Organisation (\S+)/m.exec(second.errors) ?? [];
    const ambiguous = await command(['keys', 'create', '--in', 'Beta'], environment);
    expect([ambiguous.code, ambiguous.output]).toEqual([1, '']);
    expect(ambiguous.errors).toContain(`2 have that name. Specify an id: ${id}, ${secondId}.`);
    expect((await command(['members', 'list', '--in', secondId], environment)).output).toContain('bea@beta.example');
  });

  it('rejects a second process on the same database', async () => {
    const { clickhouseUrl, databaseUrl } = runlake.stores();
    const { code, errors } = await command(['all'], {
      RUNLAKE_CLICKHOUSE_URL: clickhouseUrl,
      RUNLAKE_DATABASE_URL: databaseUrl,
      RUNLAKE_SECRET_KEY: 'a secret key of the tests',
      RUNLAKE_PORT: '0',
      RUNLAKE_TOOLS_PORT: '0',
    });
    expect(errors).toContain('Another runlake process uses the database');
    expect(errors).not.toContain(new URL(databaseUrl).password);
    expect(code).toBe(1);
    expect((await fetch(`${runlake.url}/ok`)).status).toBe(200);
  }, 30_000);

  it('creates no user with an invalid email address', async () => {
    const environment = { RUNLAKE_DATA_DIR: runlake.dataDir };
    const { code, errors } = await command(['keys', 'create', '--email', 'nobody'], environment);
    expect(code).toBe(1);
    expect(errors).toContain("--email must be an email address, not 'nobody'.");
    expect((await command(['keys', 'list'], environment)).output).not.toContain('nobody');
  });

  it.each(['nonsense', '00000000-0000-4000-8000-000000000000'])(
    'reports that there is no key %s to revoke',
    async (id) => {
      const { code, errors } = await command(['keys', 'revoke', id], { RUNLAKE_DATA_DIR: runlake.dataDir });
      expect(code).toBe(1);
      expect(errors).toMatch(/is not a key id|API key not found/);
    },
  );
});
