import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { createChildDriver } from '../../../api/command-line/child-driver.ts';
import { startedMessage } from '../../../api/command-line/follow-host.ts';
import { loadConfig } from '../../../infra/config/load.ts';
import { findFreePorts } from '../../../infra/embedded/free-port.ts';
import type { DeploymentDriver, ReplicaSpec } from '../../../pipelines/deployments/driver.ts';
import { folderForSuite } from '../../folders.ts';

const spec: ReplicaSpec = {
  ...{ deploymentId: 'd', revisionId: 'r', name: 'Name', slug: 'name', workspaceId: 'w', organizationId: 'o' },
  ...{ number: 1, agentsFile: '/builds/langgraph.json', environment: {}, secretReferences: [], resources: {} },
};

/** Stands in for the program of the child: responds with its process id, and ends with the channel. */
const program = `
import { createServer } from 'node:http';
import { connect } from 'node:net';
process.on('disconnect', () => process.exit());
console.error(JSON.stringify({ level: 30, line: '\\u0001'.repeat(4_000), msg: 'graph code wrote' }));
const at = { port: Number(process.env.RUNLAKE_AGENTS_PORT), host: '127.0.0.1' };
const { environment } = JSON.parse(process.env.RUNLAKE_AGENTS_REVISION);
const server = createServer((_request, response) => response.end(String(process.pid)));
server.on('error', ({ message }) => process.send({ code: 'PORT_IN_USE', message }));
const start = () => server.listen(at, () => process.send(${JSON.stringify(startedMessage)}));
// With WAITS, another program gets the port while the child loads its graphs.
const wait = () => setTimeout(() => connect(at).on('connect', start).on('error', wait), 300);
if (environment.WAITS) wait();
else start();
`;
const original = { execPath: process.execPath, script: process.argv[1] as string };
const folder = folderForSuite();
let port: number;
let driver: DeploymentDriver;

beforeAll(async () => {
  process.argv[1] = join(folder, 'program.mjs');
  writeFileSync(process.argv[1], program);
  [port = 0] = await findFreePorts(1);
  const { config } = loadConfig({ RUNLAKE_DEPLOYMENTS_PORT_RANGE: `${port}-${port}` });
  const addresses = { clickhouseUrl: 'http://127.0.0.1:1/x', databaseUrl: 'postgres://127.0.0.1:1/x' };
  driver = createChildDriver({ config, addresses, secretKey: 'secret' });
});

afterEach(() => {
  process.execPath = original.execPath;
});

afterAll(async () => {
  process.argv[1] = original.script;
});

const start = (of = spec) => driver.start(of, { signal: new AbortController().signal, onLog: () => undefined });

/** Waits without returning to the event loop, so that Node does not notice the end of the child. */
function blockUntilDead(pid: number): void {
  while (!/\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8')));
}

it('reports that a child cannot be started, and frees its port', async () => {
  process.execPath = join(folder, 'missing');
  for (let attempt = 0; attempt < 2; attempt += 1) await expect(start()).rejects.toMatchObject({ code: 'ENOENT' });
});

it('frees the port of a revision that it cannot run', async () => {
  const { agentsFile: _, ...image } = spec;
  for (let attempt = 0; attempt < 2; attempt += 1)
    await expect(start(image)).rejects.toMatchObject({ code: 'DEPLOYMENT_START_FAILED' });
});

it('does not take another program at the port of a child that loads its graphs for the child', async () => {
  let requests = 0;
  const other = createHttpServer((_request, response) => {
    requests += 1;
    response.end();
  });
  const onLog = () => void other.listen(port, '127.0.0.1');
  const starting = driver.start(
    { ...spec, environment: { WAITS: '1' } },
    { signal: new AbortController().signal, onLog },
  );
  await expect(starting).rejects.toMatchObject({ code: 'INTERNAL', cause: { code: 'PORT_IN_USE' } });
  expect(requests).toBe(0);
  other.closeAllConnections();
  await once(other.close(), 'close');
});

it('passes the longest line that graph code can write', async () => {
  const lines: string[] = [];
  const replica = await driver.start(spec, {
    signal: new AbortController().signal,
    onLog: (line) => lines.push(line),
  });
  await expect.poll(() => lines).toEqual(['\u0001'.repeat(4_000)]);
  await replica.stop(0);
});

it('stops a child that was killed before it gets the message to retire, and frees its port', async () => {
  const replica = await start();
  const pid = Number(await (await fetch(replica.url)).text());
  process.kill(pid, 'SIGKILL');
  blockUntilDead(pid);
  await replica.stop(1_000);
  expect(await replica.ended).toBe('The agent server was killed by SIGKILL');
  const next = await start();
  await next.stop(0);
  const other = createServer().listen(port, '127.0.0.1');
  await once(other, 'listening');
  other.close();
});
