import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createServer as createTcpServer } from 'node:net';
import { beforeAll, expect, it, onTestFinished } from 'vitest';
import { askRunlake } from '../../ask-runlake.ts';
import { builtProgram } from '../../built-program.ts';
import { forSuite } from '../../for-suite.ts';
import { listenOnLoopback } from '../../infra/listen-on-loopback.ts';
import { startRunlake } from '../../runlake-process.ts';
import { runCommand } from './run-command.ts';

/** `runlake runs`, `runlake usage` and `runlake audit`, and the link of the start. */
const runlake = forSuite(() => startRunlake());
let environment: Record<string, string>;
const failedId = randomUUID();

const send = async (name: string, more: object = {}) => {
  const now = new Date().toISOString();
  const run = { id: randomUUID(), name, run_type: 'chain', inputs: { city: 'Lyon' }, start_time: now, end_time: now };
  await askRunlake(runlake, '/runs', { body: { ...run, session_name: 'trips', ...more } });
};
const sendBatch = async (count: number, name: string) => {
  const now = new Date().toISOString();
  const post = Array.from({ length: count }, () => {
    const id = randomUUID();
    const times = {
      start_time: now,
      end_time: now,
      dotted_order: `${now.replace(/[-:.]/g, '').slice(0, -1)}000Z${id}`,
    };
    return { ...times, id, trace_id: id, name, run_type: 'chain', session_name: 'trips' };
  });
  await askRunlake(runlake, '/runs/batch', { body: { post } });
};
const run = async (...args: string[]) => {
  const { code, text: output } = await runCommand(args, environment);
  return { code, output };
};
const parseLines = (text: string) =>
  text
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));

beforeAll(async () => {
  environment = {
    LANGSMITH_ENDPOINT: runlake.url,
    LANGSMITH_API_KEY: runlake.apiKey,
    RUNLAKE_DATA_DIR: runlake.dataDir,
  };
  await send('plan');
  await send('book', { id: failedId, error: 'sold out\nat line 1' });
});

it('lists runs, newest first, with filters', async () => {
  const { output, code } = await run('runs', 'list', '--project', 'trips');
  expect(code).toBe(0);
  const [header, first, second] = output.split('\n');
  expect(header).toMatch(/^TIME +ID +NAME +TYPE +STATUS/);
  expect(first).toMatch(new RegExp(`${failedId} +book +chain +error .*sold out$`));
  expect(second).toMatch(/plan +chain +success/);
  expect(parseLines((await run('runs', 'list', '--errors', '--json')).output)).toMatchObject([{ id: failedId }]);
  const filtered = await run('runs', 'list', '--filter', 'eq(name, "plan")', '--json');
  expect(parseLines(filtered.output)).toMatchObject([{ name: 'plan' }]);
  expect((await run('runs', 'list', '--limit', '1', '--json')).output.trim().split('\n')).toHaveLength(1);
});

it('lists the runs since a day', async () => {
  const days = ['2999-01-01', '2020-01-01'].map((day) => run('runs', 'list', '--since', day, '--json'));
  const [later, earlier] = await Promise.all(days);
  expect(later).toEqual({ code: 0, output: '' });
  expect(parseLines(earlier?.output ?? '')).toHaveLength(2);
});

it('names the options of an empty range of usage', async () => {
  const { code, output } = await run('usage', '--start', '2030-01-01');
  expect(output).toContain('--start must be before --end');
  expect(code).toBe(1);
});

it('shows a run with its values and its link', async () => {
  const { output } = await run('runs', 'show', failedId);
  expect(output).toContain('"city": "Lyon"');
  expect(output).toMatch(new RegExp(`LINK +${runlake.url}/o/.*/projects/p/.*/r/${failedId}`));
  expect(JSON.parse((await run('runs', 'show', failedId, '--json')).output)).toMatchObject({ id: failedId });
});

it.each([
  [['runs', 'list', '--project', 'none'], "no project 'none'"],
  [['runs', 'list', '--project', ''], "no project ''"],
  [['runs', 'list', '--limit', '0'], '--limit'],
  [['runs', 'list', '--since', 'noon'], '--since'],
  [['runs', 'list', '--filter', 'eq('], 'Invalid filter'],
  [['runs', 'show', 'x'], 'not the id of a run'],
  [['usage', '--start', 'noon'], '--start'],
  [['audit', '--limit', 'x'], '--limit'],
])('%j is refused', async (args, text) => {
  const { code, output } = await run(...args);
  expect(code).toBe(1);
  expect(output).toContain(text);
});

it.each([
  ['LANGSMITH_API_KEY', 'rlk_first\nrlk_second'],
  ['LANGSMITH_API_KEY', 'rlk_ab…yz'],
  ['LANGSMITH_WORKSPACE_ID', '工作区'],
])('%s with characters that no header can have is refused by name', async (variable, value) => {
  const { code, text } = await runCommand(['runs', 'list'], { ...environment, [variable]: value });
  expect(code).toBe(1);
  expect(text).toContain(`${variable} contains`);
  expect(text).not.toContain(value);
});

it.each(['runs list', 'usage', 'deployments list', 'keys create'])(
  '%s takes the name or the id of a workspace',
  async (words) => {
    const attempt = (workspace: string) => run(...words.split(' '), '--workspace', workspace);
    const workspaces = await fetch(`${runlake.url}/workspaces`, { headers: { 'x-api-key': runlake.apiKey } });
    const [{ id }] = (await workspaces.json()) as [{ id: string }];
    expect((await attempt('Default')).code).toBe(0);
    expect((await attempt(id)).code).toBe(0);
    const unknown = await attempt('nowhere');
    expect(unknown.code).toBe(1);
    expect(unknown.output).toContain("No workspace has the name or id 'nowhere'. Names: Default");
  },
);

const head = (status: string) => `HTTP/1.1 ${status}\r\ncontent-type: application/json\r\n`;

it.each([
  ['of another server', `${head('200 OK')}content-length: 6\r\n\r\n<html>`, /: the response of \S+ is not JSON\.\n/],
  [
    'that is cut off',
    `${head('200 OK')}content-length: 99\r\n\r\n[`,
    /: the response of \S+ is incomplete \(\w+\)\.\n/,
  ],
  [
    'of an error that is cut off',
    `${head('400 Bad')}content-length: 99\r\n\r\n{`,
    /: the response of \S+ is incomplete/,
  ],
])('reports a response %s', async (_what, response, reason) => {
  const server = createTcpServer((socket) => socket.once('data', () => socket.end(response)));
  const LANGSMITH_ENDPOINT = `http://127.0.0.1:${await listenOnLoopback(server)}`;
  const { code, text } = await runCommand(['runs', 'list'], { ...environment, LANGSMITH_ENDPOINT });
  server.close();
  expect(code).toBe(1);
  expect(text).toMatch(reason);
  expect(text).toContain('Check LANGSMITH_ENDPOINT');
  expect(text).not.toMatch(/^ {4}at |unexpected error/m);
});

it('prints runs as they start, also more than a page at once', async () => {
  const child = spawn(process.execPath, [builtProgram, 'runs', 'tail', '--json'], {
    env: { PATH: process.env.PATH, ...environment },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  try {
    let output = '';
    child.stdout.on('data', (chunk) => {
      output += chunk;
    });
    const count = (text: string) => new Set(output.match(new RegExp(`^.*"name":"${text}".*$`, 'gm'))).size;
    // The command prints only what starts after it does, so one of these runs is the first.
    await expect
      .poll(
        async () => {
          await send('tailed');
          return output;
        },
        { timeout: 30_000, interval: 500 },
      )
      .toContain('"tailed"');
    expect(output).not.toContain('"plan"');
    await sendBatch(150, 'many');
    await expect.poll(() => count('many'), { timeout: 30_000 }).toBe(150);
    const ids = parseLines(output.slice(0, output.lastIndexOf('\n'))).map(({ id }) => id);
    expect(new Set(ids).size).toBe(ids.length);
  } finally {
    child.kill('SIGINT');
  }
  expect(await new Promise((resolve) => child.once('exit', resolve))).toBe(0);
});

it('prints usage by project', async () => {
  await expect
    .poll(async () => (await run('usage', '--group-by', 'project')).output, { timeout: 30_000 })
    .toMatch(/trips/);
  const { output } = await run('usage', '--group-by', 'project', '--json');
  expect(parseLines(output)).toMatchObject([{ dimensions: { project_name: 'trips' }, traces: expect.any(Number) }]);
});

it('prints the usage of more workspaces than a request may name', async () => {
  const workspaces = Array.from({ length: 201 }, () => ({ id: randomUUID(), display_name: 'w' }));
  const server = createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? '', 'http://stub');
    const ids = searchParams.getAll('workspace_ids');
    const row = { time_bucket: '2026-01-01T00:00:00Z', dimensions: { user_email: 'a@b.c' }, traces: ids.length };
    const body = pathname.endsWith('/workspaces') ? workspaces : { stride: { days: 1, hours: 0 }, usage: [row] };
    response.writeHead(ids.length > 200 ? 422 : 200, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  });
  const LANGSMITH_ENDPOINT = `http://127.0.0.1:${await listenOnLoopback(server)}`;
  onTestFinished(() => {
    server.close();
  });
  const { text } = await runCommand(['usage', '--group-by', 'user', '--json'], {
    ...environment,
    LANGSMITH_ENDPOINT,
  });
  expect(parseLines(text)).toMatchObject([{ dimensions: { user_email: 'a@b.c' }, traces: 201 }]);
});

it('prints the audit log', async () => {
  await run('keys', 'create', '--description', 'from the terminal');
  const { output } = await run('audit', '--action', 'api_key');
  expect(output).toMatch(/^TIME +ACTOR +FROM +ACTION +TARGET/);
  expect(output).toMatch(/\(command\) +- +api_key\.create +from the terminal/);
  // The next line says that there are older entries.
  const [line = ''] = (await run('audit', '--json', '--limit', '1')).output.split('\n');
  const entry = JSON.parse(line);
  expect(entry).toMatchObject({ action: 'api_key.create', actor: { kind: 'command' } });
});

it('names the time from which on older entries of the audit log follow, without skipping any', async () => {
  for (const description of ['one', 'two'])
    await run('keys', 'create', '--email', 'leaver@example.org', '--description', description);
  // Both keys are revoked at nearly the same time.
  await run('members', 'remove', 'leaver@example.org');
  await run('keys', 'create', '--description', 'later');
  const list = async (...options: string[]) => {
    const { output } = await run('audit', '--action', 'api_key', '--json', ...options);
    const entries = output.match(/^\{.*$/gm)?.map((line) => JSON.parse(line) as { id: string; action: string }) ?? [];
    return { output, entries };
  };
  const { entries: all } = await list('--limit', '3');
  expect(all.map(({ action }) => action)).toEqual(['api_key.create', 'api_key.revoke', 'api_key.revoke']);
  const { entries: first, output } = await list('--limit', '2');
  const until = /--until (\S+)/.exec(output)?.[1] ?? '';
  const { entries: second } = await list('--limit', '2', '--until', until);
  expect(new Set([...first, ...second].map(({ id }) => id))).toEqual(new Set(all.map(({ id }) => id)));
});

it('prints a link that signs in once', async () => {
  const token = /\/signin#once=([\w-]{43}) {2}\(signs in once\)/.exec(runlake.output())?.[1];
  const open = () =>
    fetch(`${runlake.url}/api/v1/session/once`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ token }),
    });
  expect((await open()).status).toBe(201);
  expect((await open()).status).toBe(401);
});

it('shows the numbers of a run as they were sent', async () => {
  const id = randomUUID();
  const response = await fetch(`${runlake.url}/runs`, {
    method: 'POST',
    headers: { 'x-api-key': runlake.apiKey, 'content-type': 'application/json' },
    body: `{"id": "${id}", "name": "exact", "run_type": "tool", "session_name": "exact", "inputs": {"id": 9007199254740993, "price": 0.10}}`,
  });
  expect(response.status).toBe(202);
  for (const more of [[], ['--json']]) {
    const { output } = await run('runs', 'show', id, ...more);
    expect(output).toContain('"id": 9007199254740993');
    expect(output).toContain('"price": 0.10');
  }
});

it('shows a run that is nested very deep', async () => {
  const depth = 4_900;
  const nested = `${'{"a":'.repeat(depth)}12345678901234567890${'}'.repeat(depth)}`;
  const id = randomUUID();
  const now = new Date().toISOString();
  const start = JSON.stringify({ id, name: 'deep', run_type: 'chain', start_time: now, session_name: 'trips' });
  const sent = await fetch(`${runlake.url}/runs`, {
    method: 'POST',
    headers: { 'x-api-key': runlake.apiKey, 'content-type': 'application/json' },
    body: `${start.slice(0, -1)},"inputs":${nested}}`,
  });
  expect(sent.status).toBeLessThan(300);
  await expect.poll(() => run('runs', 'show', id), { timeout: 20_000 }).toMatchObject({ code: 0 });
  const shown = await run('runs', 'show', id);
  expect(shown.output).toContain('NAME     deep');
  expect(shown.output).toContain(`inputs:\n${nested}`);
  const json = await run('runs', 'show', id, '--json');
  expect(json.code).toBe(0);
  expect(JSON.parse(json.output)).toMatchObject({ id, name: 'deep' });
});
