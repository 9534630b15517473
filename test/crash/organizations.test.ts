import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { createClient } from '@clickhouse/client';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { builtCommand, builtProgram } from '../built-program.ts';
import { type RunlakeProcess, startRunlake } from '../runlake-process.ts';

/** The organisation commands, and a Runlake that is killed while it deletes the data of an organisation. */

let runlake: RunlakeProcess;
beforeAll(async () => {
  runlake = await startRunlake();
}, 120_000);
afterAll(() => runlake?.remove());

const command = (...words: string[]) =>
  builtCommand(['organizations', ...words], { RUNLAKE_DATA_DIR: runlake.dataDir, RUNLAKE_LOG_LEVEL: 'warn' });

/** Runs the command with `answer` on standard input. */
async function commandWithInput(answer: string, ...words: string[]): Promise<{ code: number | null; text: string }> {
  const env = { PATH: process.env.PATH, RUNLAKE_DATA_DIR: runlake.dataDir };
  const child = spawn(process.execPath, [builtProgram, 'organizations', ...words], { env });
  let text = '';
  child.stdout.on('data', (chunk) => (text += chunk));
  child.stderr.on('data', (chunk) => (text += chunk));
  child.stdin.end(answer);
  return new Promise((resolve) => child.once('close', (code) => resolve({ code, text })));
}

function ask(key: string, path: string, body?: object, headers: Record<string, string> = {}): Promise<Response> {
  return fetch(`${runlake.url}${path}`, {
    method: body === undefined ? 'GET' : 'POST',
    headers: { 'x-api-key': key, 'content-type': 'application/json', ...headers },
    ...(body && { body: JSON.stringify(body) }),
  });
}

async function storedRuns(workspaceIds: readonly string[]): Promise<number> {
  const client = createClient({ url: runlake.stores().clickhouseUrl });
  try {
    const query = 'SELECT count() AS rows FROM runs WHERE tenant_id IN ({ids:Array(UUID)})';
    const answer = await client.query({ query, query_params: { ids: workspaceIds }, format: 'JSONEachRow' });
    return Number((await answer.json<{ rows: string }>())[0]?.rows);
  } finally {
    await client.close();
  }
}

it('creates an organisation, and deletes it in spite of a SIGKILL', { timeout: 300_000 }, async () => {
  const wrong = await command('create', 'Acme', '--email', 'nonsense');
  expect([wrong.code, wrong.errors]).toEqual([
    1,
    expect.stringContaining("--email must be an email address, not 'nonsense'"),
  ]);
  const made = await command('create', 'Acme', '--email', 'ana@acme.example', '--handle', 'acme');
  expect([made.code, made.errors]).toEqual([0, expect.stringMatching(/tenant handle acme\n.*ana@acme\.example/s)]);
  const key = made.output.trim();
  const [organization] = (await (await ask(key, '/orgs')).json()) as { id: string; display_name: string }[];
  expect(organization?.display_name).toBe('Acme');
  const id = organization?.id ?? '';
  for (const display_name of ['b', 'c', 'd'])
    expect((await ask(key, '/workspaces', { display_name })).status).toBe(200);
  const workspaces = (await (await ask(key, '/workspaces')).json()) as { id: string }[];
  const ids = workspaces.map((workspace) => workspace.id);
  expect(ids).toHaveLength(4);
  for (const workspace of ids) {
    const run = { id: randomUUID(), name: 'r', run_type: 'chain', inputs: {} };
    expect((await ask(key, '/runs', run, { 'x-tenant-id': workspace })).status).toBe(202);
  }
  await expect.poll(() => storedRuns(ids), { timeout: 30_000 }).toBe(4);

  const refused = await commandWithInput('acme\n', 'delete', id);
  expect([refused.code, refused.text]).toEqual([1, expect.stringContaining('Nothing was deleted')]);
  expect((await commandWithInput('', 'delete', id)).code).toBe(1);
  expect((await command('delete', randomUUID(), '--confirm', 'Acme')).code).toBe(1);
  expect((await command('delete', 'x', '--confirm', 'Acme')).errors).toContain("No organisation 'x'");
  expect((await ask(key, '/orgs')).status).toBe(200);

  const deleted = await commandWithInput('Acme\n', 'delete', id);
  expect([deleted.code, deleted.text]).toEqual([0, expect.stringContaining('is deleted')]);
  await runlake.kill();
  runlake = await runlake.restart();
  expect((await ask(key, '/orgs')).status).toBe(401);
  const row = async () => (await command('list')).output.split('\n').find((line) => line.includes(id));
  await expect.poll(row, { timeout: 200_000, interval: 1_000 }).toMatch(/ deleted *$/);
  expect(await storedRuns(ids)).toBe(0);
  // The operator's organisation remains.
  const { output } = await command('list');
  const first = output.split('\n')[1]?.split(' ')[0] ?? '';
  expect((await command('delete', first, '--confirm', 'Default')).errors).toContain('cannot be deleted');
  expect((await commandWithInput('', 'delete', id, '--confirm', 'Acme')).code).toBe(0);
});
