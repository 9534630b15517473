// # 5. Running it
//
// `make start` builds what is missing and runs `runlake all` in the foreground: the HTTP API, the event log, the sink, the
// usage roll-up, and ClickHouse and Postgres as child processes. Everything it stores is in one folder, `.runlake` unless
// RUNLAKE_DATA_DIR says otherwise.
//
// In a shell, `runlake` is `node dist/api/command-line/runlake.js`.

import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { builtCommand } from '../../test/built-program.ts';
import { type RunlakeProcess, startRunlake } from '../../test/runlake-process.ts';

/** A command in another terminal. It finds the running Runlake through the data folder. */
const command = (words: readonly string[], environment: Record<string, string> = {}) =>
  builtCommand(words, { RUNLAKE_DATA_DIR: runlake.dataDir, ...environment });

let runlake: RunlakeProcess;
beforeAll(async () => {
  runlake = await startRunlake();
});
afterAll(() => runlake?.remove());

const ask = (path: string, key: string, body?: object) =>
  fetch(`${runlake.url}${path}`, {
    method: body === undefined ? 'GET' : 'POST',
    headers: { 'x-api-key': key, 'content-type': 'application/json' },
    ...(body && { body: JSON.stringify(body) }),
  });

describe('settings', () => {
  it('come from the environment; `runlake config` prints each with its source, secrets hidden', async () => {
    const { output } = await command(['config'], {
      RUNLAKE_PORT: '8080',
      RUNLAKE_BOOTSTRAP_API_KEY: 'a-long-secret-key',
    });
    expect(output).toContain('RUNLAKE_PORT=8080  (environment)');
    expect(output).toContain('RUNLAKE_HOST=127.0.0.1  (default)');
    expect(output).not.toContain('a-long-secret-key');
  });

  it('that are wrong are all reported at once', async () => {
    const { code, errors } = await command(['all'], { RUNLAKE_PORT: 'http', RUNLAKE_LOG_LEVEL: 'loud' });
    expect(code).toBe(1);
    expect(errors).toContain("RUNLAKE_PORT='http'");
    expect(errors).toContain("RUNLAKE_LOG_LEVEL='loud'");
  });
});

describe('health', () => {
  it('shows over HTTP: /ok while the process lives, /ready when every part is up, /metrics for Prometheus', async () => {
    expect((await fetch(`${runlake.url}/ok`)).status).toBe(200);
    expect(await (await fetch(`${runlake.url}/ready`)).json()).toMatchObject({
      status: 'ready',
      parts: { clickhouse: { up: true }, postgres: { up: true }, event_log: { up: true } },
    });
    expect(await (await fetch(`${runlake.url}/metrics`)).text()).toContain('runlake_runs_accepted_total');
  });

  it('shows in the terminal: `runlake doctor` says in words what is up and what to do', async () => {
    const { code, output } = await command(['doctor']);
    expect(code).toBe(0);
    for (const part of ['Configuration', 'Process', 'HTTP', 'ClickHouse', 'Postgres', 'Schema'])
      expect(output).toMatch(new RegExp(`^ok +${part}: `, 'm'));
  });
});

describe('keys', () => {
  it('are made and revoked in the terminal too, for whoever has lost the last one', async () => {
    // Only the key is on standard output, so that a script can take it.
    const { output } = await command(['keys', 'create', '--description', 'From the terminal']);
    const key = output.trim();
    expect((await ask('/sessions', key)).status).toBe(200);

    const { output: list } = await command(['keys', 'list']);
    const [id = ''] =
      list
        .split('\n')
        .find((line) => line.includes('From the terminal'))
        ?.split(/\s+/) ?? [];
    expect((await command(['keys', 'revoke', id])).output).toContain('is revoked');
    await expect.poll(async () => (await ask('/sessions', key)).status, { timeout: 20_000 }).toBe(401);
  });
});

describe('one folder, one Runlake', () => {
  it('refuses a second one in one sentence', async () => {
    const { code, errors } = await command(['all'], { RUNLAKE_PORT: '0' });
    expect(code).toBe(1);
    expect(errors).toContain(`is in use by another runlake process (${runlake.pid})`);
  });
});

describe('stopping', () => {
  it('finishes what was accepted, and the next start has everything', async () => {
    const id = randomUUID();
    const run = { id, name: 'kept', run_type: 'chain', inputs: {} };
    expect((await ask('/runs', runlake.apiKey, run)).status).toBe(202);

    // Ctrl-C or SIGTERM. While it drains, new requests get 503 with Retry-After.
    expect(await runlake.stop()).toBe(0);

    const { code, output } = await command(['doctor']);
    expect(code).toBe(1);
    expect(output).toContain('No runlake process is running');

    runlake = await runlake.restart();
    expect(await (await ask(`/runs/${id}`, runlake.apiKey)).json()).toMatchObject({ name: 'kept' });
  });

  it('loses nothing when it is killed', async () => {
    const id = randomUUID();
    const run = { id, name: 'kept too', run_type: 'chain', inputs: {} };
    expect((await ask('/runs', runlake.apiKey, run)).status).toBe(202);
    await runlake.kill();
    runlake = await runlake.restart();
    expect(await (await ask(`/runs/${id}`, runlake.apiKey)).json()).toMatchObject({ name: 'kept too' });
  });
});
