import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { client, type OAuthServer, startOAuthServer } from '../api/control-plane/oauth-server.ts';
import { type RunlakeProcess, startRunlake } from '../runlake-process.ts';
import { pythonEnvironment } from './python/environment.ts';

const script = fileURLToPath(new URL('python/get_oauth_token.py', import.meta.url));
const environment = pythonEnvironment();

let runlake: RunlakeProcess;
let server: OAuthServer;
beforeAll(async () => {
  if ('missing' in environment) return;
  runlake = await startRunlake({ environment: { RUNLAKE_ALLOW_PRIVATE_ENDPOINTS: 'true' } });
  server = await startOAuthServer({ redirectUris: [`${runlake.url}/host-oauth-callback/mail`] });
});
afterAll(async () => {
  await server?.close();
  await runlake?.remove();
});

test.skipIf('missing' in environment)('the stock Python client gets a token, unmodified', async () => {
  if ('missing' in environment) return;
  const program = spawn(environment.python, [script], {
    env: {
      ...{ PATH: process.env.PATH, LANGSMITH_API_URL: `${runlake.url}/api-host`, LANGSMITH_API_KEY: runlake.apiKey },
      ...{ CLIENT_ID: client.id, CLIENT_SECRET: client.secret, AUTH_URL: server.authUrl, TOKEN_URL: server.tokenUrl },
    },
    stdio: ['ignore', 'pipe', 'inherit'],
    timeout: 60_000,
  });
  const lines = createInterface({ input: program.stdout })[Symbol.asyncIterator]();
  const read = async () => JSON.parse((await lines.next()).value ?? 'null');
  const { url } = await read();
  const page = await fetch(await server.visit(url));
  expect(await page.text()).toContain('You have given access to Mail');
  expect(await read()).toEqual({
    provider: 'mail',
    uses_pkce: true,
    statuses: ['pending', 'completed', 'completed'],
    same_token: true,
    mine: false,
    revoked: 'mail',
    updated: 'Post',
    listed: ['mail'],
    deleted: 'OAuth provider deleted',
  });
  if (program.exitCode === null) await once(program, 'exit');
  expect(program.exitCode).toBe(0);
});
