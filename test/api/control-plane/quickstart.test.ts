import { afterAll, beforeAll, expect, it } from 'vitest';
import { openDatabase } from '../../../infra/postgres/pool.ts';
import { createLogger } from '../../../infra/telemetry/logger.ts';
import { until } from '../../infra/until.ts';
import { type RunlakeProcess, startRunlake } from '../../runlake-process.ts';
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

/** Returns the address of the replica that serves a deployment. */
async function findReplica(deploymentId: string): Promise<string> {
  const database = openDatabase({
    url: runlake.stores().databaseUrl,
    logger: createLogger('silent', 'test'),
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

async function invoke(url: string, said: string) {
  const response = await fetch(`${url}/runs/wait`, {
    method: 'POST',
    headers: { 'x-api-key': runlake.apiKey, 'content-type': 'application/json' },
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
