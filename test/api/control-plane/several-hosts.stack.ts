import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openDatabase } from '../../../infra/postgres/pool.ts';
import { type RoleServers, sharedServers } from '../../crash/servers-of-roles.ts';
import { stackPart } from '../../engines/stack.ts';
import { folderForSuite } from '../../folders.ts';
import { findStackS3 } from '../../infra/objects/s3/s3-of-stack.ts';
import { until } from '../../infra/until.ts';
import { type RoleProcess, startRole } from '../../role-process.ts';
import { logger } from '../../silent-logger.ts';
import { testSettings } from '../../test-settings.ts';
import { DeploymentClient, echoSource } from './deployment-client.ts';

/**
 * The API and two hosts as separate processes, with Kafka: replicas are child processes `runlake agents`. The hosts get
 * the sources from a bucket.
 */
const s3 = findStackS3();
const kafka = stackPart('kafka');
const apiKey = 'test-key-of-the-deployments-under-test';

describe.runIf(s3 && kafka)('several hosts', () => {
  let servers: RoleServers;
  const root = folderForSuite();
  let api: RoleProcess;
  let sink: RoleProcess;
  let hosts: RoleProcess[];
  let client: DeploymentClient;

  const environment = (name: string) => ({
    ...servers.environment,
    RUNLAKE_CLICKHOUSE_URL: servers.clickhouseUrl,
    RUNLAKE_DATABASE_URL: servers.databaseUrl,
    RUNLAKE_SECRET_KEY: 'a secret key for the tests of deployments',
    RUNLAKE_BOOTSTRAP_API_KEY: apiKey,
    // Hosts share no folder.
    RUNLAKE_DATA_DIR: join(root, name),
    RUNLAKE_DEPLOYMENTS_SOURCE_STORE: sourceStore(),
    RUNLAKE_ALLOW_PRIVATE_ENDPOINTS: 'true',
    ...testSettings({ agentsTypesSeconds: 0, deploymentsLeaseMs: 4_000, deploymentsRestartDelayMs: 200 }),
  });

  function sourceStore(): string {
    const { endpoint = '', bucket = '' } = s3 ?? {};
    const { accessKeyId = '', secretAccessKey = '' } = s3?.credentials('admin') ?? {};
    const user = `${encodeURIComponent(accessKeyId)}:${encodeURIComponent(secretAccessKey)}`;
    return `s3://${user}@${bucket}/sources?endpoint=${encodeURIComponent(endpoint)}`;
  }

  beforeAll(async () => {
    servers = await sharedServers();
    sink = await startRole('ingest', environment('sink'));
    api = await startRole('api', environment('api'));
    hosts = await Promise.all(['one', 'two'].map((name) => startRole('agents', environment(name))));
    client = new DeploymentClient(api.url, apiKey);
  }, 120_000);
  afterAll(async () => {
    if (process.env.RUNLAKE_TEST_OUTPUT) for (const role of [api, ...(hosts ?? [])]) console.log(role?.output());
    await Promise.all([...(hosts ?? []), api, sink].map((role) => role?.end()));
    await servers?.release();
  });

  async function readReplicas(deploymentId: string) {
    const database = openDatabase({
      url: servers.databaseUrl,
      logger,
      timeoutMs: 10_000,
    });
    try {
      return await database.query<{ url: string | null; host_id: string; revision_id: string; restarts: number }>(
        'SELECT url, host_id, revision_id, restarts FROM deployment_replicas WHERE deployment_id = $1 ORDER BY number',
        [deploymentId],
      );
    } finally {
      await database.close();
    }
  }

  const reply = async (url: string | null, said = 'hello') => {
    const response = await fetch(`${url}/runs/wait`, {
      method: 'POST',
      headers: { 'x-api-key': apiKey, 'content-type': 'application/json' },
      body: JSON.stringify({ assistant_id: 'echo', input: { said } }),
    });
    return ((await response.json()) as { reply?: string }).reply;
  };

  it('deploys, updates while a run is executed, and moves the replicas of a killed host', async () => {
    const secrets = [{ name: 'REPLY', value: 'from the secret' }];
    const made = await client.create('several hosts', {
      secrets,
      sourceConfig: { resource_spec: { min_scale: 2 }, deployment_type: 'prod' },
    });
    const first = await client.push(made.id, echoSource('$REPLY'));
    await client.awaitDeployed(made.id, first.latest_revision_id);
    const replicas = await readReplicas(made.id);
    expect(replicas).toHaveLength(2);
    for (const { url } of replicas) expect(await reply(url)).toBe('from the secret');

    const slow = reply(replicas[0]!.url, 'slow');
    const second = await client.push(made.id, echoSource('second'));
    await client.awaitDeployed(made.id, second.latest_revision_id);
    expect(await slow).toBe('from the secret');
    await until(
      'only the new replicas',
      async () => {
        const rows = await readReplicas(made.id);
        return rows.length === 2 && rows.every(({ revision_id }) => revision_id === second.latest_revision_id);
      },
      60_000,
    );
    for (const { url } of await readReplicas(made.id)) expect(await reply(url)).toBe('second');

    await hosts[0]!.end('SIGKILL');
    await until(
      'both replicas on the other host',
      async () => {
        const rows = await readReplicas(made.id);
        const isUp = await Promise.all(
          rows.map(async ({ url }) => (await fetch(`${url}/ok`).catch(() => undefined))?.ok),
        );
        return rows.length === 2 && isUp.every((up) => up) && new Set(rows.map(({ host_id }) => host_id)).size === 1;
      },
      90_000,
    );
    for (const { url } of await readReplicas(made.id)) expect(await reply(url)).toBe('second');

    const broken = await client.push(made.id, {
      ...echoSource('x'),
      'echo.js': 'throw new Error("broken at import");',
    });
    const failed = await client.awaitEnd(made.id, broken.latest_revision_id, 120_000);
    expect(failed.status).toBe('DEPLOY_FAILED');
    expect(failed.transitions.at(-1).reason).toContain('broken at import');
    await client.ask('DELETE', `/v2/deployments/${made.id}`);
    await until(
      'it to be deleted',
      async () => (await client.ask('GET', `/v2/deployments/${made.id}`)).status === 404,
      90_000,
    );
  }, 300_000);
});
