/**
 * The agent server of one process, or a part of it: a front process claims no runs, and a worker process serves no
 * HTTP.
 *
 * Start order (each part adds its shutdown step to `shutdown`): user ids of graph code → Postgres account of graph code →
 * graph workers → stream hub → executor → HTTP → crons, webhooks, notifications of Postgres. At shutdown, crons and
 * webhooks stop first; then HTTP refuses new requests. Runs that do not finish within the drain timeout are requeued.
 */
import { join } from 'node:path';
import { buildGraphEnvironment } from '../../infra/config/graph-environment.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { readDatabaseClock } from '../../infra/postgres/clock.ts';
import { listen } from '../../infra/postgres/listen.ts';
import { poll } from '../../infra/timeouts/poll.ts';
import { startRepeating } from '../../infra/timeouts/repeat.ts';
import { readTrustedAuthorities } from '../../infra/tls/trusted-authorities.ts';
import { type HttpApp, openHttpApp } from '../../pipelines/agents/app/http-app.ts';
import { RecentAssistants } from '../../pipelines/agents/assistants/assistant.ts';
import { ensureSystemAssistants } from '../../pipelines/agents/assistants/write-assistants.ts';
import { type AuthProcess, openAuthProcess } from '../../pipelines/agents/auth/auth-process.ts';
import { createCronRun, startCrons } from '../../pipelines/agents/crons/fire-cron.ts';
import type { Executor } from '../../pipelines/agents/execute/executor.ts';
import { type GraphsFile, readGraphsFile } from '../../pipelines/agents/graphs/graphs-file.ts';
import { findLibraryVersion } from '../../pipelines/agents/graphs/load-graph.ts';
import { type DeploymentWatch, openDeployment, watchDeployment } from '../../pipelines/agents/open-deployment.ts';
import { deleteExpiredFinalValues } from '../../pipelines/agents/runs/published-ends.ts';
import { createHeaderRule } from '../../pipelines/agents/runs/run-request.ts';
import { readTypesInBackground } from '../../pipelines/agents/schemas/read-types-in-background.ts';
import { buildStoreConfig } from '../../pipelines/agents/store/store-item.ts';
import { deleteExpiredItems } from '../../pipelines/agents/store/write-items.ts';
import { createStatePublisher } from '../../pipelines/agents/streams/publish-state.ts';
import { openStreamHub } from '../../pipelines/agents/streams/stream-hub.ts';
import { expireThreads } from '../../pipelines/agents/threads/delete-thread.ts';
import { createDeletedThreadPurge } from '../../pipelines/agents/threads/deleted-threads.ts';
import { getDefaultTtl } from '../../pipelines/agents/threads/thread.ts';
import { buildUisInBackground } from '../../pipelines/agents/ui/build-uis.ts';
import { deriveWebhookSecret, startWebhooks } from '../../pipelines/agents/webhooks/deliver-webhooks.ts';
import { buildWebhookRules } from '../../pipelines/agents/webhooks/webhook-rules.ts';
import { maxStateValues, parseAnswer } from '../../pipelines/agents/workers/front/parse-answer.ts';
import { createCustomAccess } from '../agent-server/access/custom-access.ts';
import { buildAgentApi } from '../agent-server/agent-api.ts';
import type { Agents } from '../agent-server/agent-operation.ts';
import { listServedOperations } from '../agent-server/operations.ts';
import type { CustomAccess } from '../server/api-form.ts';
import type { Operation } from '../server/operation.ts';
import type { Services } from '../server/services.ts';
import { createTicketSigner, type TicketReader } from '../server/session-ticket.ts';
import { type AgentDeps, type IsolatedGraphs, isolateGraphs, openGraphPool, startWork } from './agent-work.ts';
import { type AgentsPart, getAgentServerAddress, getAgentServerUrl } from './check-port.ts';
import { listenHttp } from './serve-http.ts';
import type { ShutdownSteps } from './shutdown-steps.ts';

/**
 * Heap size of the process that derives schemas from types. The TypeScript compiler needs this much memory for projects
 * with many packages.
 */
const typesHeapMegabytes = 1_024;
/** Timeout for building one UI. */
const uiLimitMs = 60_000;

/** Values that are printed for the operator at startup. */
export interface StartedAgents {
  readonly url: string;
  /** Description of the isolation of graph code. */
  readonly graphCode: string;
  /**
   * Prepares the end of an agent server that another one replaces: claims no more runs, and waits at most `timeoutMs`
   * for its runs and for the requests that it is serving. Clients of the streams of its runs notice nothing.
   */
  retire(timeoutMs: number): Promise<void>;
}

/**
 * Starts the agent server for the graphs of `config.agentsFile`. @throws GRAPHS_FILE_INVALID, PORT_IN_USE and the
 * errors of the parts.
 */
export async function startAgents(
  parts: AgentDeps & Pick<Services, 'authenticator' | 'rateLimiter'>,
  part: Exclude<AgentsPart, 'work'>,
  shutdown: ShutdownSteps,
): Promise<StartedAgents> {
  const { config, logger, authenticator, rateLimiter } = parts;
  const opened = await openAgents(parts, shutdown, part);
  const { agents } = opened;
  const apiProfile = buildAgentApi(config, agents.workspaceId, { ...opened, authenticator, rateLimiter });
  const services = { authenticator, rateLimiter, agents };
  const { url, server, drain } = await listenHttp({
    server: { config, services, logger, operations: opened.operations, form: apiProfile },
    at: getAgentServerAddress(config),
  });
  shutdown.add('HTTP', drain);
  await startBackgroundWork(parts, opened, url, shutdown);
  return {
    url,
    graphCode: opened.graphCode,
    async retire(timeoutMs) {
      const deadlineMs = performance.now() + timeoutMs;
      await opened.executor.stop(timeoutMs);
      const isIdle = () => server.inFlightRequests === 0;
      await poll(isIdle, { intervalMs: 50, timeoutMs: deadlineMs - performance.now() });
    },
  };
}

/** Starts claiming and executing runs, without HTTP. @throws GRAPHS_FILE_INVALID and the errors of the parts. */
export async function startAgentWork(
  parts: AgentDeps,
  shutdown: ShutdownSteps,
): Promise<Pick<StartedAgents, 'graphCode'>> {
  const { config, logger, databaseUrl, stores } = parts;
  const file = await readGraphsFile(config.agentsFile, config.agentsRevision?.environment);
  const servedDeployment = await openDeployment(stores.database, config);
  const isolatedGraphs = await isolateGraphs(parts, file, servedDeployment, shutdown);
  const pool = await openGraphPool(parts, isolatedGraphs, 'work', shutdown);
  const watch = watchDeployment(stores.database, servedDeployment, logger);
  shutdown.add('deployment watch', () => watch.stop());
  const { executor } = startWork(parts, { servedDeployment, file, watch }, pool, shutdown);
  const { deploymentId } = servedDeployment;
  await listenForNotifications(
    { databaseUrl, config, logger, deploymentId, wakeByChannel: createWakeHandlers(executor) },
    shutdown,
  );
  return { graphCode: isolatedGraphs.words };
}

/**
 * Checks that every graph of a deployment is usable, so that a broken revision never replaces one that works.
 *
 * @throws DEPLOYMENT_START_FAILED
 */
function requireAllGraphs(loadErrors: ReadonlyMap<string, string>): void {
  const [first] = loadErrors;
  if (first === undefined) return;
  const [graphId, reason] = first;
  throw runlakeError('DEPLOYMENT_START_FAILED', {
    reason: `Graph '${graphId}' cannot be loaded: ${reason.replace(/\.$/, '')}`,
  });
}

export interface OpenedAgents {
  readonly agents: Agents;
  readonly executor: Executor;
  /** Set if the langgraph.json has `auth`. Unset: requests are authenticated and authorised with API keys. */
  readonly ownAccess?: CustomAccess;
  readonly tickets: TicketReader;
  readonly http: GraphsFile['http'];
  /** Set if the langgraph.json has `http.app`. */
  readonly app?: HttpApp;
  readonly operations: readonly Operation[];
  /** Description of the isolation of graph code. */
  readonly graphCode: string;
  readonly watch: DeploymentWatch;
}

/** Opens all dependencies of the agent server's operations. */
export async function openAgents(
  parts: AgentDeps,
  shutdown: ShutdownSteps,
  part: Exclude<AgentsPart, 'work'> = 'both',
): Promise<OpenedAgents> {
  const { config, logger, log } = parts;
  const { database, clickhouse } = parts.stores;
  const file = await readGraphsFile(config.agentsFile, config.agentsRevision?.environment);
  if (file.ignoredFields.length > 0)
    logger.warn({ file: file.path, fields: file.ignoredFields }, 'unsupported fields of langgraph.json are ignored');
  const deployment = await openDeployment(database, config);
  const { deploymentId, operator } = deployment;
  const { organizationId, workspaceId } = operator;
  const watch = watchDeployment(database, deployment, logger);
  shutdown.add('deployment watch', () => watch.stop());

  const isolatedGraphs = await isolateGraphs(parts, file, deployment, shutdown);
  const { accounts, words: graphCode } = isolatedGraphs;
  const { authProcess, app } = await openProjectProcesses(parts, file, accounts, shutdown);
  const pool = await openGraphPool(parts, isolatedGraphs, part, shutdown);
  if (deployment.project !== undefined) requireAllGraphs(pool.loadErrors);
  const served = file.graphs.map(({ graphId, description }) => ({
    ...{ graphId, name: graphId, description },
    ...file.defaultConfigs.get(graphId),
  }));
  await ensureSystemAssistants(database, deploymentId, served);

  const hub = await openStreamHub({ log, clickhouse, deploymentId, gapTimeoutMs: config.agentsLeaseMs + 10_000 });
  shutdown.add('streams', () => hub.close());
  // Started before the graph runs and stopped after them, so that a sweep in progress does not delay their drain.
  startSweepers(parts, file, deploymentId, shutdown);
  const { executor, publisher } = startWork(parts, { servedDeployment: deployment, file, watch }, pool, shutdown);
  if (app) watch.onDeleted(() => app.close());

  const graphs = Object.fromEntries(served.map(({ graphId, ...graph }) => [graphId, graph]));
  const types = readTypesInBackground({
    graphs: file.graphs.filter(({ graphId }) => !pool.loadErrors.has(graphId)),
    pool,
    cacheFolder: join(config.dataDir, 'graph-types'),
    limitMs: config.agentsTypesSeconds * 1_000,
    heapMegabytes: typesHeapMegabytes,
    accounts,
    logger,
  });
  shutdown.add('graph types', () => types.stop());
  const uis = buildUisInBackground({
    file: file.http.disable_ui ? { ...file, ui: {} } : file,
    environment: buildGraphEnvironment(),
    accounts,
    limitMs: uiLimitMs,
    logger,
  });
  shutdown.add('UIs', () => uis.stop());
  const webhooks = buildWebhookRules({
    settings: file.webhooks,
    disabled: file.http.disable_webhooks ?? false,
    environment: file.env,
    allowPrivate: config.allowPrivateEndpoints,
  });
  const protocols = { mcp: !file.http.disable_mcp, a2a: !file.http.disable_a2a };
  const store = buildStoreConfig(file.store, async (texts) =>
    parseAnswer(await pool.query({ kind: 'embed', texts }), maxStateValues),
  );
  const wake = () => executor.wake();
  const copiesHeader = createHeaderRule(file.http.configurable_headers);
  const acceptsFeedbackKeys = config.publicUrl !== undefined;
  const ownAccess =
    authProcess && createCustomAccess({ authProcess, database, deploymentId, operator, graphIds: Object.keys(graphs) });
  return {
    agents: {
      deploymentId,
      organizationId,
      workspaceId,
      config,
      database,
      pool,
      types,
      uis,
      hub,
      publishState: createStatePublisher(publisher, logger),
      graphs,
      getNodes: (graphId) => pool.nodes.get(graphId),
      libraryVersion: await findLibraryVersion(file),
      protocols,
      store,
      webhooks,
      copiesHeader,
      acceptsFeedbackKeys,
      ...(deployment.project !== undefined && { project: deployment.project }),
      threadTtl: getDefaultTtl(file.checkpointer),
      wake,
      recentAssistants: new RecentAssistants(),
    },
    executor,
    tickets: { signer: createTicketSigner(parts.secretKey), deploymentId },
    http: file.http,
    operations: listServedOperations(file.http),
    graphCode,
    watch,
    ...(ownAccess && { ownAccess }),
    ...(app && { app }),
  };
}

/** Starts the processes of the project's own authentication and routes, if its langgraph.json has these. */
async function openProjectProcesses(
  { config, logger }: AgentDeps,
  file: GraphsFile,
  accounts: IsolatedGraphs['accounts'],
  shutdown: ShutdownSteps,
): Promise<{ readonly authProcess: AuthProcess | undefined; readonly app: HttpApp | undefined }> {
  const common = {
    environment: buildGraphEnvironment(),
    accounts,
    heartbeatTimeoutMs: config.agentsHeartbeatTimeoutMs,
    logger,
  };
  const authProcess = file.auth && (await openAuthProcess({ ...common, file }));
  if (authProcess) shutdown.add('custom authentication', () => authProcess.close());
  const app =
    file.app &&
    (await openHttpApp({
      ...common,
      file: { ...file, app: file.app },
      serverUrl: getAgentServerUrl(config),
      timeoutMs: config.agentsAppTimeoutMs,
    }));
  if (app) shutdown.add('custom app', () => app.close());
  return { authProcess, app };
}

/** Starts the removal of what has expired. */
function startSweepers(
  { stores, log, logger }: AgentDeps,
  file: GraphsFile,
  deploymentId: string,
  shutdown: ShutdownSteps,
): void {
  const sweepers = [
    { what: 'threads', sweep: expireThreads, everyMinutes: file.checkpointer.ttl?.sweep_interval_minutes },
    { what: 'items of the store', sweep: deleteExpiredItems, everyMinutes: file.store.ttl?.sweep_interval_minutes },
    { what: 'final values of runs', sweep: deleteExpiredFinalValues },
    {
      what: 'stream events of deleted threads',
      sweep: createDeletedThreadPurge({ clickhouse: stores.clickhouse, log }),
    },
  ].map(({ what, sweep, everyMinutes = 0.5 }) =>
    startRepeating(
      async (signal) => {
        // Each call removes a bounded number of rows. Several processes can do this at once.
        while (!signal.aborted && (await sweep(stores.database, deploymentId, signal)) > 0);
      },
      {
        maxPauseMs: everyMinutes * 60_000,
        onFailure: (err) => logger.warn({ err, what }, 'expired rows could not be removed: retrying'),
      },
    ),
  );
  shutdown.add('expiry', async () => void (await Promise.all(sweepers.map((sweeper) => sweeper.stop()))));
}

/**
 * Starts all work that is not triggered by requests: crons, webhooks, and reactions to notifications from other
 * processes.
 */
export async function startBackgroundWork(
  parts: AgentDeps,
  { agents, executor, watch }: OpenedAgents,
  ownUrl: string,
  shutdown: ShutdownSteps,
): Promise<void> {
  const { config, logger, databaseUrl, secretKey } = parts;
  const { database, deploymentId, webhooks: rules } = agents;
  const authorities = readTrustedAuthorities(config);
  const crons = startCrons({
    database,
    deploymentId,
    createCronRun: (tx, cron) => createCronRun(tx, deploymentId, cron, agents),
    logger,
    now: readDatabaseClock,
  });
  shutdown.add('crons', () => crons.stop());
  const webhooks = startWebhooks({
    database,
    deploymentId,
    rules,
    secret: config.agentsWebhookSecret ?? deriveWebhookSecret(secretKey, deploymentId),
    ownUrl,
    allowPrivate: config.allowPrivateEndpoints,
    authorities,
    logger,
    now: readDatabaseClock,
  });
  shutdown.add('webhooks', () => webhooks.stop());
  for (const each of [crons, webhooks]) watch.onDeleted(() => each.stop());
  const wakeByChannel = {
    ...createWakeHandlers(executor),
    agent_crons: () => crons.wake(),
    agent_webhooks: () => webhooks.wake(),
  };
  await listenForNotifications({ databaseUrl, config, logger, deploymentId, wakeByChannel }, shutdown);
}

function createWakeHandlers(executor: Executor): Readonly<Record<string, () => void>> {
  return {
    agent_runs: () => executor.wake(),
    agent_cancels: () => executor.checkLeases(),
    agent_ends: () => executor.publishMissingEnds(),
  };
}

/**
 * Listens for Postgres notifications. The payload is the deployment id. It is empty if notifications may have been
 * lost.
 */
async function listenForNotifications(
  {
    databaseUrl: url,
    config,
    logger,
    deploymentId,
    wakeByChannel,
  }: Pick<AgentDeps, 'databaseUrl' | 'config' | 'logger'> & {
    readonly deploymentId: string;
    readonly wakeByChannel: Readonly<Record<string, () => void>>;
  },
  shutdown: ShutdownSteps,
): Promise<void> {
  const channels = Object.keys(wakeByChannel);
  const onNotice = (channel: string, payload: string) => {
    if (payload === '' || payload === deploymentId) wakeByChannel[channel]?.();
  };
  const notices = await listen({ url, authorities: readTrustedAuthorities(config), channels, onNotice, logger });
  shutdown.add('notices', () => notices.close());
}
