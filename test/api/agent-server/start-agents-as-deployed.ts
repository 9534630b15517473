import { randomBytes } from 'node:crypto';
import { Client } from '@langchain/langgraph-sdk';
import type { Database } from '../../../infra/postgres/database.ts';
import { webhookSecret } from '../../crash/webhook-receiver.ts';
import { freshStores } from '../../engines/stores.ts';
import { createProxyTo, forSuite } from '../../for-suite.ts';
import { until } from '../../infra/until.ts';
import { type RoleProcess, startRole } from '../../role-process.ts';
import { joinEnvironments, testSettings } from '../../test-settings.ts';
import { addOrganization, type OrganizationUnderTest } from '../start-api.ts';
import { buildGraphsFilePath, createRequester, startAgentServer } from './start-agent-server.ts';

/** An agent server as its clients see it, wherever it runs. */
export interface DeployedAgents {
  readonly url: string;
  readonly client: Client;
  readonly database: Database;
  readonly owner: OrganizationUnderTest;
  ask: ReturnType<typeof createRequester>;
  close(): Promise<void>;
}

/** Starts one server for all tests of a suite. */
export function shareDeployedAgents() {
  const server = forSuite(startAgentsAsDeployed);
  return { server, client: createProxyTo(() => server.client) };
}

/**
 * Starts the server. With embedded engines, everything runs in this process. With the native stack, agents and the sink
 * run as in production: in separate processes from the built code, with Kafka between them.
 */
async function startAgentsAsDeployed(): Promise<DeployedAgents> {
  const stores = await freshStores();
  if (stores.environment.RUNLAKE_KAFKA_BROKERS === undefined) {
    await stores.close();
    return startAgentServer({ config: { allowPrivateEndpoints: true, agentsWebhookSecret: webhookSecret } });
  }
  const owner = await addOrganization(stores.database, 'owner');
  const environment = {
    ...joinEnvironments(stores.environment, testSettings({ agentsHeartbeatMs: 200, drainTimeoutMs: 100 })),
    RUNLAKE_CLICKHOUSE_URL: stores.clickhouseUrl,
    RUNLAKE_DATABASE_URL: stores.databaseUrl,
    RUNLAKE_SECRET_KEY: randomBytes(24).toString('base64url'),
    RUNLAKE_DATA_DIR: '/dev/null/none',
    RUNLAKE_AGENTS_FILE: buildGraphsFilePath('basic'),
    RUNLAKE_AGENTS_DEPLOYMENT: owner.id,
    RUNLAKE_AGENTS_PORT: '0',
    RUNLAKE_AGENTS_WORKERS: '1',
    // Webhooks go to a server of the test.
    RUNLAKE_ALLOW_PRIVATE_ENDPOINTS: 'true',
    RUNLAKE_AGENTS_WEBHOOK_SECRET: webhookSecret,
  };
  const roles: RoleProcess[] = [];
  const close = async () => {
    await Promise.all(roles.map((role) => role.end()));
    await stores.close();
  };
  try {
    roles.push(...(await Promise.all([startRole('agents', environment), startRole('ingest', environment)])));
    const address = () => /Runlake runs agents at (\S+)/.exec(roles[0]?.output() ?? '')?.[1];
    await until('an agent server responds', () => address() !== undefined);
    const url = address() as string;
    const client = new Client({ apiUrl: url, apiKey: owner.adminKey, callerOptions: { maxRetries: 0 } });
    return { url, client, database: stores.database, owner, ask: createRequester(url, owner.adminKey), close };
  } catch (error) {
    await close();
    throw error;
  }
}
