import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { openDatabase } from '../../../infra/postgres/pool.ts';
import { askRunlake } from '../../ask-runlake.ts';
import { until } from '../../infra/until.ts';
import { type RunlakeProcess, startRunlake } from '../../runlake-process.ts';
import { logger } from '../../silent-logger.ts';
import { startGate } from '../../web/gate.ts';
import { DeploymentClient, echoSource } from './deployment-client.ts';

/** The quick start of deployments, over HTTP, on embedded engines. */
let runlake: RunlakeProcess;
let client: DeploymentClient;

beforeAll(async () => {
  runlake = await startRunlake({ environment: { RUNLAKE_LOG_LEVEL: 'info' } });
  client = new DeploymentClient(runlake.url, runlake.apiKey);
});
afterAll(async () => {
  if (process.env.RUNLAKE_TEST_OUTPUT) console.log(runlake.output());
  await runlake?.remove();
});

/** A source whose graph cannot be loaded. */
const unusable = { ...echoSource('x'), 'echo.js': 'throw new Error("broken at import");' };

/** Returns the address of the replica that serves a deployment. */
async function findReplica(deploymentId: string): Promise<string> {
  const database = openDatabase({
    url: runlake.stores().databaseUrl,
    logger,
    timeoutMs: 10_000,
  });
  try {
    const [row] = await database.query<{ url: string }>(
      `SELECT url FROM deployment_replicas AS p JOIN deployments AS d ON d.active_revision_id = p.revision_id
       WHERE d.id = $1 AND url IS NOT NULL`,
      [deploymentId],
    );
    return row!.url;
  } finally {
    await database.close();
  }
}

async function invoke(url: string, said: string, key = runlake.apiKey) {
  const response = await fetch(`${url}/runs/wait`, {
    method: 'POST',
    headers: { 'x-api-key': key, 'content-type': 'application/json' },
    body: JSON.stringify({ assistant_id: 'echo', input: { said } }),
  });
  return { status: response.status, body: await response.json() };
}

it('creates, deploys, updates and deletes', async () => {
  const created = await client.create('quick start', { secrets: [{ name: 'REPLY', value: 'from the secret' }] });
  expect(created).toMatchObject({
    name: 'quick start',
    status: 'READY',
    latest_revision_id: null,
    secrets: [{ name: 'REPLY', value: '' }],
  });
  const first = await client.push(created.id, echoSource('$REPLY'));
  expect(first.latest_revision_id).toMatch(/^[0-9a-f-]{36}$/);
  const deployed = await client.awaitDeployed(created.id, first.latest_revision_id);
  expect(deployed.transitions.map(({ to_status }: { to_status: string }) => to_status)).toEqual([
    ...['CREATING', 'QUEUED', 'AWAITING_BUILD', 'BUILDING', 'AWAITING_DEPLOY', 'DEPLOYING', 'DEPLOYED'],
  ]);
  const address = await findReplica(created.id);
  expect(await invoke(address, 'hello')).toMatchObject({ status: 200, body: { reply: 'from the secret' } });

  const second = await client.push(created.id, echoSource('second'));
  await client.awaitDeployed(created.id, second.latest_revision_id);
  expect(await invoke(await findReplica(created.id), 'hello')).toMatchObject({ body: { reply: 'second' } });
  const { body: read } = await client.ask('GET', `/v2/deployments/${created.id}`);
  expect(read).toMatchObject({
    active_revision_id: second.latest_revision_id,
    latest_revision_id: second.latest_revision_id,
  });

  expect(await client.ask('DELETE', `/v2/deployments/${created.id}`)).toMatchObject({ status: 204 });
  await until('deleted', async () => (await client.ask('GET', `/v2/deployments/${created.id}`)).status === 404, 60_000);
}, 180_000);

it('a failed build leaves the previous revision serving, and its log says why, without secrets', async () => {
  const secrets = [{ name: 'REPLY', value: 'a-very-secret-value' }];
  const first = await client.deploy('failing build', echoSource('still here'), { secrets });
  await client.awaitDeployed(first.id, first.latest_revision_id);
  const broken = await client.push(first.id, echoSource('never'), {
    source_config: { build_command: 'echo "compiling with a-very-secret-value"; echo "no such module" >&2; exit 1' },
  });
  const path = `/v2/deployments/${first.id}/revisions/${broken.latest_revision_id}`;
  const stream = fetch(`${runlake.url}${path}/logs`, {
    headers: { 'x-api-key': runlake.apiKey, accept: 'text/event-stream' },
  });
  const ended = await client.awaitEnd(first.id, broken.latest_revision_id);
  expect(ended.status).toBe('BUILD_FAILED');
  expect(ended.transitions.at(-1).reason).toContain('no such module');
  const { body: read } = await client.ask('GET', `${path}/logs?stage=build`);
  const text = read.logs.map((chunk: { text: string }) => chunk.text).join('\n');
  expect(text).toContain('compiling with ***');
  expect(text).toContain('no such module');
  expect(JSON.stringify([read, ended])).not.toContain('a-very-secret-value');
  const events = await (await stream).text();
  expect(events).toContain('event: log');
  expect(events).toContain('no such module');
  expect(events).toMatch(/event: status\ndata: \{"status":"BUILD_FAILED"\}\n\n$/);
  const ofReplicas = await fetch(`${runlake.url}${path}/logs?stage=run`, {
    headers: { 'x-api-key': runlake.apiKey, accept: 'text/event-stream' },
  });
  expect(await ofReplicas.text()).not.toContain('no such module');

  const { body: unchanged } = await client.ask('GET', `/v2/deployments/${first.id}`);
  expect(unchanged).toMatchObject({ active_revision_id: first.latest_revision_id });
  expect(await invoke(await findReplica(first.id), 'hello')).toMatchObject({ body: { reply: 'still here' } });

  // A graph that cannot be loaded fails when it is started.
  const { latest_revision_id: id } = await client.push(first.id, unusable, {
    source_config: { build_command: 'true' },
  });
  const failed = await client.awaitEnd(first.id, id);
  expect(failed).toMatchObject({ status: 'DEPLOY_FAILED' });
  expect(failed.transitions.at(-1).reason).toContain('broken at import');
  expect(await invoke(await findReplica(first.id), 'hello')).toMatchObject({ body: { reply: 'still here' } });

  const { body: rolledBack } = await client.ask(
    'POST',
    `/v2/deployments/${first.id}/revisions/${first.latest_revision_id}/redeploy`,
  );
  await client.awaitDeployed(first.id, rolledBack.latest_revision_id);
  expect(await invoke(await findReplica(first.id), 'hello')).toMatchObject({ body: { reply: 'still here' } });
  const { body: revisions } = await client.ask('GET', `/api-host/v2/deployments/${first.id}/revisions?limit=2`);
  expect(revisions.resources.map(({ id }: { id: string }) => id)).toEqual([rolledBack.latest_revision_id, id]);
}, 180_000);

it('deployments of two workspaces see only their own data, and traces go to the project of the deployment', async () => {
  const { body: workspace } = await client.ask('POST', '/workspaces', { display_name: 'second' });
  const { body: created } = await client.ask('POST', '/api-key', { description: 'second', workspaces: [workspace.id] });
  const second = new DeploymentClient(runlake.url, created.key);
  const mine = await client.deploy('shared name', echoSource('mine'));
  const theirs = await second.deploy('shared name', echoSource('theirs'));
  await client.awaitDeployed(mine.id, mine.latest_revision_id);
  await second.awaitDeployed(theirs.id, theirs.latest_revision_id);
  const urls = [mine, theirs].map(({ source_config }) => source_config.custom_url);
  expect(urls[0]).toMatch(/\/deployments\/shared-name$/);
  expect(urls[1]).toMatch(/\/deployments\/shared-name-[0-9a-f]{8}$/);
  const [mineAt, theirsAt] = [await findReplica(mine.id), await findReplica(theirs.id)];

  expect(await invoke(mineAt, 'hello')).toMatchObject({ body: { reply: 'mine' } });
  expect(await invoke(theirsAt, 'hello', created.key)).toMatchObject({ body: { reply: 'theirs' } });
  expect(await invoke(mineAt, 'hello', created.key)).toMatchObject({ status: 403 });
  const { thread_id } = await askRunlake({ url: mineAt, apiKey: runlake.apiKey }, '/threads', { body: {} });
  const foreign = await fetch(`${theirsAt}/threads/${thread_id}`, { headers: { 'x-api-key': created.key } });
  expect(foreign.status).toBe(404);
  expect(await second.ask('GET', `/v2/deployments/${mine.id}`)).toMatchObject({ status: 404 });
  const { body: listed } = await second.ask('GET', '/v2/deployments');
  expect(listed.resources.map(({ id }: { id: string }) => id)).toEqual([theirs.id]);

  await until('the trace of the run', async () => {
    const { body } = await client.ask('POST', '/api/v1/runs/query', {
      session: [mine.tracing_project_id],
      is_root: true,
    });
    return body.runs?.length === 1 && body.runs[0].name === 'echo';
  });
}, 180_000);

it('restores every deployment after a SIGKILL', async () => {
  const { body: before } = await client.ask('GET', '/v2/deployments');
  runlake = await runlake.restart();
  client = new DeploymentClient(runlake.url, runlake.apiKey);
  for (const { id, active_revision_id } of before.resources) {
    if (active_revision_id === null) continue;
    await until('its replica to answer', async () => {
      const url = await findReplica(id).catch(() => undefined);
      return url !== undefined && (await fetch(`${url}/ok`).catch(() => undefined))?.ok === true;
    });
  }
  expect(await invoke(await findReplica(before.resources.at(-1).id), 'hello')).toMatchObject({ status: 200 });
}, 120_000);

it('after SIGTERM, refuses new requests to deployments at once, and finishes those in flight', async () => {
  const made = await client.deploy('stopping', echoSource('answered'));
  await client.awaitDeployed(made.id, made.latest_revision_id);
  const url = made.source_config.custom_url;
  const gate = await startGate();
  onTestFinished(gate.close);
  const slow = invoke(url, gate.url);
  const database = openDatabase({ url: runlake.stores().databaseUrl, logger, timeoutMs: 10_000 });
  const isRunning = async () => (await database.query(`SELECT FROM agents.runs WHERE status = 'running'`)).length > 0;
  await until('the run', isRunning).finally(() => database.close());
  const stopped = runlake.stop();
  await until('a refusal', async () => {
    const response = await fetch(`${url}/info`);
    return !response.ok && ((await response.json()) as { code?: string }).code === 'DRAINING';
  });
  gate.open();
  expect(await slow).toMatchObject({ status: 200, body: { reply: 'answered' } });
  expect(await stopped).toBe(0);
  runlake = await runlake.restart();
  client = new DeploymentClient(runlake.url, runlake.apiKey);
}, 60_000);

it('ends after SIGTERM, although a revision could not start', async () => {
  const { body } = await client.ask('GET', '/v2/deployments');
  const [{ id }] = body.resources;
  const pushed = await client.push(id, unusable, { source_config: { build_command: 'true' } });
  expect(await client.awaitEnd(id, pushed.latest_revision_id)).toMatchObject({ status: 'DEPLOY_FAILED' });
  expect(await runlake.stop()).toBe(0);
}, 60_000);
