import { fileURLToPath } from 'node:url';
import { Client } from '@langchain/langgraph-sdk';
import type { FastifyInstance } from 'fastify';
import { buildAgentApi } from '../../../api/agent-server/agent-api.ts';
import type { AgentServices } from '../../../api/agent-server/agent-operation.ts';
import { agentOperations } from '../../../api/agent-server/operations.ts';
import { createMainApiServices } from '../../../api/command-line/main-api-services.ts';
import { openEventLog } from '../../../api/command-line/open-event-log.ts';
import { ShutdownSteps } from '../../../api/command-line/shutdown-steps.ts';
import { openAgents, startBackgroundWork } from '../../../api/command-line/start-agents.ts';
import { startSink } from '../../../api/command-line/start-storing.ts';
import { buildServer } from '../../../api/server/build-server.ts';
import type { Services } from '../../../api/server/services.ts';
import { loadConfig } from '../../../infra/config/load.ts';
import type { Config } from '../../../infra/config/settings.ts';
import type { EventLog } from '../../../infra/event-log/event-log.ts';
import type { Database } from '../../../infra/postgres/database.ts';
import type { Executor } from '../../../pipelines/agents/execute/executor.ts';
import { copyProjectsWithLibrary, type Library } from '../../agents/projects-with.ts';
import { type FreshStores, freshStores } from '../../engines/stores.ts';
import { logger } from '../../silent-logger.ts';
import { watchErrors } from '../declared-errors.ts';
import { addOrganization, type OrganizationUnderTest } from '../start-api.ts';

export interface AgentServerUnderTest {
  readonly url: string;
  /** The stock client, with an admin key of the owner and without retries. */
  readonly client: Client;
  readonly server: FastifyInstance;
  readonly services: AgentServices;
  /** Services of a main API that uses the same stores. */
  readonly answering: Services;
  readonly executor: Executor;
  readonly database: Database;
  /** Resources that servers of other deployments share with this one. */
  readonly shared: Shared;
  readonly owner: OrganizationUnderTest;
  clientOf(key: string): Client;
  /** Sends a request as the owner. */
  ask: ReturnType<typeof createRequester>;
  close(): Promise<void>;
}

export interface AgentServerOptions {
  readonly config?: Partial<Omit<Config, 'agentsFile'>>;
  /** Folder below `test/agents/projects`. */
  readonly project?: string;
  /** Folder of the projects, with a trailing slash. Default: that of the library under test. */
  readonly projects?: string;
  /** A running server whose stores, log and organisation are shared. It must be closed last. */
  readonly shareStoresWith?: AgentServerUnderTest;
}

interface Shared {
  readonly stores: FreshStores;
  readonly log: EventLog;
}

/** Set by `library-versions.test.ts`: the suites then run graphs with this version of LangGraph. */
const library = process.env.RUNLAKE_TEST_LANGGRAPH as Library | undefined;
const projects =
  library === undefined
    ? fileURLToPath(new URL('../../agents/projects/', import.meta.url))
    : await copyProjectsWithLibrary(library);

export function buildGraphsFilePath(project: string, folder = projects): string {
  return `${folder}${project}/langgraph.json`;
}

/** Returns a function that sends requests with a key through `fetch`; bodies are sent as JSON. */
export function createRequester(url: string, apiKey: string) {
  return (method: string, path: string, body?: unknown, headers: Record<string, string> = {}): Promise<Response> =>
    fetch(`${url}${path}`, {
      method,
      headers: { 'x-api-key': apiKey, ...(body !== undefined && { 'content-type': 'application/json' }), ...headers },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
}

/** Reads a streamed response in the background, until it ends or breaks. */
export function readInBackground({ body }: Response): { readonly text: string; readonly ended: boolean } {
  const seen = { text: '', ended: false };
  void (async () => {
    const decoder = new TextDecoder();
    for await (const chunk of body ?? []) seen.text += decoder.decode(chunk, { stream: true });
  })()
    .catch(() => undefined)
    .finally(() => {
      seen.ended = true;
    });
  return seen;
}

/** Starts an agent server with all dependencies on a free port; it has its own stores unless `beside` is set. */
export async function startAgentServer(options: AgentServerOptions = {}): Promise<AgentServerUnderTest> {
  const ends = new ShutdownSteps();
  const { shareStoresWith } = options;
  const stores = shareStoresWith?.shared.stores ?? (await freshStores());
  if (!shareStoresWith) ends.add('stores', () => stores.close());
  const { database, databaseUrl } = stores;
  const owner = shareStoresWith?.owner ?? (await addOrganization(database, 'owner'));
  const config = {
    ...loadConfig(stores.environment).config,
    agentsFile: buildGraphsFilePath(options.project ?? 'basic', options.projects),
    agentsDeployment: owner.id,
    agentsWorkers: 1,
    agentsHeartbeatMs: 200,
    agentsAllowTruncate: true,
    agentsTypesSeconds: 0,
    drainTimeoutMs: 0,
    ...options.config,
  };
  const secretKey = 'secret of the tests';

  const log = shareStoresWith?.shared.log ?? (await openEventLog({ config, logger, stores }, ends)).log;
  if (!shareStoresWith) await startSink({ config, logger, stores, log, onHoursMarked: () => undefined }, ends);
  const answering = createMainApiServices(
    {
      config,
      logger,
      stores,
      addresses: stores,
      log,
      secretKey,
      healthChecks: [],
      jobs: { enqueue: async () => undefined },
      countRuns: () => undefined,
    },
    ends,
  );
  const parts = { config, logger, databaseUrl, stores, log, secretKey, accept: answering.accept };
  const opened = await openAgents(parts, ends);
  const { agents, executor } = opened;

  const errors = watchErrors(agentOperations);
  const { authenticator, rateLimiter } = answering;
  const services = { authenticator, rateLimiter, agents };
  const form = buildAgentApi(config, agents.workspaceId, { ...opened, authenticator, rateLimiter });
  const server = await buildServer({ config, services, logger: errors.logger, operations: opened.operations, form });
  const url = await server.listen({ host: '127.0.0.1', port: options.config?.agentsPort ?? 0 });
  await startBackgroundWork(parts, opened, url, ends);
  const clientOf = (apiKey: string) => new Client({ apiUrl: url, apiKey, callerOptions: { maxRetries: 0 } });
  return {
    url,
    client: clientOf(owner.adminKey),
    server,
    services,
    answering,
    executor,
    database,
    shared: { stores, log },
    owner,
    clientOf,
    ask: createRequester(url, owner.adminKey),
    async close() {
      await server.drain();
      await ends.run(logger);
      errors.check();
    },
  };
}

/** Returns the status of the error that a call of a client rejects with; `none` if it succeeds. */
export const readErrorStatus = (call: Promise<unknown>) =>
  call.then(
    () => 'none',
    (error: { status?: number }) => error.status,
  );
