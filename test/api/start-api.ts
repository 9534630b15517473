import { randomUUID } from 'node:crypto';
import type { FastifyInstance, InjectOptions } from 'fastify';
import { createMainApiServices } from '../../api/command-line/main-api-services.ts';
import { openEventLog } from '../../api/command-line/open-event-log.ts';
import { ShutdownSteps } from '../../api/command-line/shutdown-steps.ts';
import { startSink } from '../../api/command-line/start-storing.ts';
import { createDeploymentProxy } from '../../api/control-plane/proxy.ts';
import { operations as allOperations } from '../../api/main/operations.ts';
import { buildServer } from '../../api/server/build-server.ts';
import type { Operation } from '../../api/server/operation.ts';
import type { Services } from '../../api/server/services.ts';
import { loadConfig } from '../../infra/config/load.ts';
import type { Config } from '../../infra/config/settings.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { generateKey, hashKey, toShortKey } from '../../pipelines/tenants/key-format.ts';
import { addOrganizationDeployment } from '../agents/add-deployment.ts';
import { openSettling, settleLog } from '../engines/settling.ts';
import { freshStores } from '../engines/stores.ts';
import { logger } from '../silent-logger.ts';
import { watchAnswers } from './declared-answers.ts';
import { watchErrors } from './declared-errors.ts';

type Method = NonNullable<InjectOptions['method']>;

export interface ApiUnderTest {
  readonly server: FastifyInstance;
  readonly services: Services;
  readonly database: Database;
  /** Sends a request with a key, without a socket. The body of an empty response is undefined. */
  ask(
    key: string,
    method: Method,
    url: string,
    payload?: object,
    headers?: Readonly<Record<string, string>>,
    // biome-ignore lint/suspicious/noExplicitAny: each operation has its own response type.
  ): Promise<{ status: number; body: any }>;
  /** Opens a socket, unless one is open, and returns its URL. */
  listen(): Promise<string>;
  /** Projects whose runs were passed to the deletion job. */
  readonly deletions: { workspaceId: string; projectId: string }[];
  /** Resolves when everything that was sent is stored; requests that read already wait for that. */
  settled(): Promise<void>;
  close(): Promise<void>;
}

export interface ApiOptions {
  readonly config?: Partial<Config>;
  readonly services?: Partial<Services>;
  readonly operations?: readonly Operation[];
}

/**
 * Starts a server with event log and sink on its own stores. The server does not roll up usage. `ask` and `server.inject` send
 * requests without a socket.
 */
export async function startApi(options: ApiOptions = {}): Promise<ApiUnderTest> {
  const stores = await freshStores();
  const config = { ...loadConfig(stores.environment).config, serveMetrics: true, ...options.config };
  const { database } = stores;
  const ends = new ShutdownSteps();
  ends.add('stores', () => stores.close());
  const { log } = await openEventLog({ config, logger, stores }, ends);
  await startSink({ config, logger, stores, log, onHoursMarked: () => undefined }, ends);
  const deletions: ApiUnderTest['deletions'] = [];
  const services: Services = {
    ...createMainApiServices(
      {
        config,
        logger,
        stores,
        addresses: stores,
        log,
        secretKey: 'secret of the tests',
        healthChecks: [{ name: 'postgres', check: () => database.ping() }],
        jobs: { enqueue: async () => undefined },
        countRuns: () => undefined,
      },
      ends,
    ),
    enqueueProjectDeletion: async (project) => void deletions.push(project),
    ...options.services,
  };
  const operations = options.operations ?? allOperations;
  const errors = watchErrors(operations);
  const mounted = createDeploymentProxy(services.replicas, { sessions: services });
  const server = await buildServer({ config, services, logger: errors.logger, operations, mounted });
  const settling = openSettling(stores.environment);
  server.addHook('onRequest', ({ method, url }) => settling.before(method, url));
  server.addHook('onSend', async ({ method, url }) => settling.after(method, url));
  const answers = watchAnswers(server, operations);
  await server.ready();
  let url: Promise<string> | undefined;
  return {
    server,
    services,
    database,
    async ask(key, method, url, payload, more) {
      const headers = { 'x-api-key': key, ...more };
      const answer = await server.inject({ method, url, headers, ...(payload && { payload }) });
      return { status: answer.statusCode, body: answer.body === '' ? undefined : answer.json() };
    },
    listen() {
      url ??= server.listen({ port: 0, host: '127.0.0.1' });
      return url;
    },
    deletions,
    settled: () => (config.kafkaBrokers === undefined ? settleLog(log) : settling.before('GET', '/')),
    async close() {
      await server.close();
      await settling.close();
      await ends.run(logger);
      errors.check();
      answers.check();
    },
  };
}

export interface OrganizationUnderTest {
  readonly id: string;
  readonly workspaceIds: readonly [string, string];
  readonly userId: string;
  /** Grants access to the whole organisation; requests without a workspace apply to the first one. */
  readonly adminKey: string;
  /** Each grants access only to the workspace of the same index. */
  readonly workspaceKeys: readonly [string, string];
}

/**
 * Adds an organisation with two workspaces, its default deployment, one user, one admin key and one admin key per
 * workspace.
 */
export async function addOrganization(database: Database, name: string): Promise<OrganizationUnderTest> {
  const id = randomUUID();
  const userId = randomUUID();
  const workspaceIds = [randomUUID(), randomUUID()] as const;
  await database.execute('INSERT INTO organizations (id, display_name) VALUES ($1, $2)', [id, name]);
  for (const [index, workspaceId] of workspaceIds.entries()) {
    await database.execute('INSERT INTO workspaces (id, organization_id, display_name) VALUES ($1, $2, $3)', [
      workspaceId,
      id,
      `${name} ${index + 1}`,
    ]);
  }
  await addOrganizationDeployment(database, { organizationId: id, workspaceId: workspaceIds[0], deploymentId: id });
  await database.execute('INSERT INTO users (id, organization_id, email) VALUES ($1, $2, $3)', [
    userId,
    id,
    `admin@${name}.example`,
  ]);
  const owner = { database, organizationId: id, userId };
  return {
    id,
    workspaceIds,
    userId,
    adminKey: await addKey({ ...owner, defaultWorkspaceId: workspaceIds[0] }),
    workspaceKeys: [
      await addKey({ ...owner, workspaceIds: [workspaceIds[0]] }),
      await addKey({ ...owner, workspaceIds: [workspaceIds[1]] }),
    ],
  };
}

/** Returns a function that sends requests with the admin key of an organisation, or with another key. */
export function askAs(api: ApiUnderTest, owner: OrganizationUnderTest) {
  return (method: Method, url: string, payload?: object, key = owner.adminKey) => api.ask(key, method, url, payload);
}

/** Inserts a key directly into the table; by default with all permissions for the whole organisation. */
export async function addKey(options: {
  database: Database;
  organizationId: string;
  userId: string;
  workspaceIds?: readonly string[] | null;
  defaultWorkspaceId?: string;
  permissions?: readonly string[];
  readOnly?: boolean;
  expiresAt?: string;
}): Promise<string> {
  const key = generateKey();
  await options.database.execute(
    `INSERT INTO api_keys (id, organization_id, workspace_ids, default_workspace_id, user_id, hash, short_key, description,
       permissions, read_only, expires_at)
     VALUES ($1, $2, $3, $4, $5, $6, $7, 'test', $8, $9, $10)`,
    [
      randomUUID(),
      options.organizationId,
      options.workspaceIds ?? null,
      options.defaultWorkspaceId ?? null,
      options.userId,
      hashKey(key),
      toShortKey(key),
      options.permissions ?? ['*'],
      options.readOnly ?? false,
      options.expiresAt ?? null,
    ],
  );
  return key;
}
