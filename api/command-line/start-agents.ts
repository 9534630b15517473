/**
 * The agent server in one process.
 *
 * Order, each part adding its end to `ends`: account of graph code → workers → stream hub → executor → HTTP → crons, webhooks,
 * notices of Postgres. At the end nothing new is fired first, then HTTP refuses new requests; runs under way get the time for draining,
 * and go back to be taken up elsewhere.
 */
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { graphEnvironment } from '../../infra/config/graph-environment.ts';
import type { Config } from '../../infra/config/settings.ts';
import { fault } from '../../infra/errors/runlake-error.ts';
import type { EventLog } from '../../infra/event-log/event-log.ts';
import { listen } from '../../infra/postgres/listen.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { trustedAuthorities } from '../../infra/tls/trusted-authorities.ts';
import { ensureSystemAssistants } from '../../pipelines/agents/assistants/ensure-system-assistants.ts';
import { openAuthDesk } from '../../pipelines/agents/auth/auth-desk.ts';
import { makeCronRun } from '../../pipelines/agents/crons/make-cron-run.ts';
import { startCrons } from '../../pipelines/agents/crons/start-crons.ts';
import { type Executor, startExecutor } from '../../pipelines/agents/execute/executor.ts';
import { traceRuns } from '../../pipelines/agents/execute/trace-run.ts';
import { type GraphsFile, readGraphsFile } from '../../pipelines/agents/graphs/graphs-file.ts';
import { readTypesInBackground } from '../../pipelines/agents/schemas/read-types-in-background.ts';
import { startExpiry } from '../../pipelines/agents/start-expiry.ts';
import { storeRules } from '../../pipelines/agents/store/store-rules.ts';
import { createStreamPublisher } from '../../pipelines/agents/streams/create-stream-publisher.ts';
import { openStreamHub } from '../../pipelines/agents/streams/stream-hub.ts';
import { tellStateBy } from '../../pipelines/agents/streams/tell-state.ts';
import { webhookSecret } from '../../pipelines/agents/webhooks/sign-webhook.ts';
import { startWebhooks } from '../../pipelines/agents/webhooks/start-webhooks.ts';
import { type WebhookRules, webhookRules } from '../../pipelines/agents/webhooks/webhook-rules.ts';
import { openWorkerPool } from '../../pipelines/agents/workers/open-worker-pool.ts';
import { openWorkerAccount } from '../../pipelines/agents/workers/worker-account.ts';
import { operatorOf } from '../../pipelines/tenants/operator.ts';
import { customAccess } from '../agent-server/access/custom-access.ts';
import { agentApi } from '../agent-server/agent-api.ts';
import type { Agents } from '../agent-server/agent-services.ts';
import { servedOperations } from '../agent-server/served-operations.ts';
import type { OwnAccess } from '../server/api-form.ts';
import type { Operation } from '../server/operation.ts';
import type { Services } from '../server/services.ts';
import { agentServerAddress } from './check-port.ts';
import type { Ends } from './ends.ts';
import type { Stores } from './open-stores.ts';
import { serveHttp } from './serve-http.ts';

export interface AgentParts {
  readonly config: Config & { readonly agentsFile: string };
  readonly logger: Logger;
  readonly databaseUrl: string;
  readonly stores: Pick<Stores, 'database' | 'warehouse'>;
  readonly log: EventLog;
  /** Signs webhooks; the same on every process. */
  readonly secretKey: string;
  readonly accept: Services['accept'];
}

/** Runs the graphs of `config.agentsFile` and answers for them. @returns where. @throws GRAPHS_FILE_INVALID, PORT_IN_USE, and what the parts throw. */
export async function startAgents(
  parts: AgentParts & { readonly authenticator: Services['authenticator'] },
  ends: Ends,
): Promise<string> {
  const { config, logger, authenticator } = parts;
  const opened = await openAgents(parts, ends);
  const { agents } = opened;
  const form = agentApi(config, agents.organizationId, opened);
  const services = { authenticator, agents };
  const url = await serveHttp({
    server: { config, services, logger, operations: opened.operations, form },
    at: agentServerAddress(config),
    ends,
  });
  await followAgents(parts, opened, url, ends);
  return url;
}

export interface OpenedAgents {
  readonly agents: Agents & { readonly webhooks: WebhookRules };
  readonly executor: Executor;
  /** Of a langgraph.json with `auth`; without, API keys say who may do what. */
  readonly ownAccess?: OwnAccess;
  readonly http: GraphsFile['http'];
  readonly operations: readonly Operation[];
}

/** Everything behind the operations of the agent server. */
export async function openAgents(parts: AgentParts, ends: Ends): Promise<OpenedAgents> {
  const { config, logger, log, databaseUrl, accept } = parts;
  const { database, warehouse } = parts.stores;
  const authorities = trustedAuthorities(config);
  const file = await readGraphsFile(config.agentsFile);
  refuseNotBuilt(file);
  const operator = await operatorOf(database, config.agentsOrganization);
  const { organizationId } = operator;

  const desk =
    file.auth &&
    (await openAuthDesk({ file, environment: graphEnvironment(), silentMs: config.agentsSilentMs, logger }));
  if (desk) ends.add('custom authentication', () => desk.close());
  const account = await openWorkerAccount({
    database,
    databaseUrl,
    givenUrl: config.agentsDatabaseUrl,
    authorities,
    logger,
  });
  ends.add('account of graph code', () => account.close());
  const pool = await openWorkerPool({
    file,
    workers: config.agentsWorkers || availableParallelism(),
    runsPerWorker: config.agentsRunsPerWorker,
    database: { url: account.url, ...(authorities && { authorities }) },
    environment: graphEnvironment(),
    maxEventBytes: config.agentsMaxEventBytes,
    silentMs: config.agentsSilentMs,
    heapMegabytes: config.agentsWorkerHeapMegabytes,
    logger,
  });
  ends.add('graph workers', () => pool.close(0));
  for (const [graph, reason] of Object.entries(pool.faults)) logger.error({ graph, reason }, 'a graph cannot be used');
  const served = file.graphs.map(({ graphId, description }) => ({ graphId, name: graphId, description }));
  await ensureSystemAssistants(database, organizationId, served);

  const hub = await openStreamHub({ log, warehouse });
  ends.add('streams', () => hub.close());
  const publisher = createStreamPublisher({
    log,
    keptMs: config.agentsStreamHours * 3_600_000,
    maxEventBytes: config.agentsMaxEventBytes,
  });
  const executor = startExecutor({
    database,
    pool,
    publisher,
    organizationId,
    traceRun: traceRuns({
      accept,
      defaultSender: { workspaceId: operator.workspaceId as string, userId: operator.userId, keyId: operator.keyId },
      tracesStatelessValues: config.agentsTraceStatelessValues,
      logger,
    }),
    logger,
    leaseMs: config.agentsLeaseMs,
    runTimeoutMs: config.agentsRunTimeoutMs,
    resumeMs: config.agentsResumeSeconds * 1_000,
  });
  ends.add('runs of graphs', () => executor.stop(config.drainTimeoutMs));
  const expiry = startExpiry({ database, organizationId, logger });
  ends.add('what has run out', () => expiry.stop());

  const graphs = Object.fromEntries(
    served.map(({ graphId, name, description }) => {
      const reason = pool.faults[graphId];
      return [graphId, { name, description, ...(reason !== undefined && { fault: reason }) }];
    }),
  );
  const types = readTypesInBackground({
    graphs: file.graphs.filter(({ graphId }) => pool.faults[graphId] === undefined),
    pool,
    keptIn: join(config.dataDir, 'graph-types'),
    limitMs: config.agentsTypesSeconds * 1_000,
    heapMegabytes: config.agentsTypesHeapMegabytes,
    logger,
  });
  ends.add('types of graphs', () => types.stop());
  const webhooks = webhookRules({
    settings: file.webhooks,
    disabled: file.http.disable_webhooks ?? false,
    environment: file.env,
    allowPrivate: config.allowPrivateEndpoints,
  });
  const protocols = { mcp: !file.http.disable_mcp, a2a: !file.http.disable_a2a };
  const store = storeRules(file.store, async (texts) => JSON.parse(await pool.ask({ kind: 'embed', texts })));
  const wake = () => executor.wake();
  const ownAccess = desk && customAccess({ desk, database, operator, graphIds: Object.keys(graphs) });
  return {
    agents: {
      ...{ organizationId, config, database, pool, types, hub, graphs, protocols, store, webhooks, wake },
      tellState: tellStateBy(publisher, logger),
    },
    executor,
    http: file.http,
    operations: servedOperations(file.http),
    ...(ownAccess && { ownAccess }),
  };
}

/** What has no effect is refused, never ignored. @throws GRAPHS_FILE_INVALID */
function refuseNotBuilt({ path, http }: GraphsFile): void {
  const place = (['app'] as const).find((name) => http[name] !== undefined);
  if (place === undefined) return;
  throw fault('GRAPHS_FILE_INVALID', { file: path, place: `http.${place}`, reason: 'it is not supported yet' });
}

/** What happens without a request: crons fire, webhooks are sent, and what other processes tell through Postgres is heard. */
export async function followAgents(
  parts: AgentParts,
  { agents, executor }: OpenedAgents,
  ownUrl: string,
  ends: Ends,
): Promise<void> {
  const { config, logger, databaseUrl, secretKey } = parts;
  const { database, organizationId, webhooks: rules } = agents;
  const authorities = trustedAuthorities(config);
  const crons = startCrons({
    database,
    organizationId,
    makeRun: (tx, cron) => makeCronRun(tx, organizationId, cron, rules),
    logger,
    now: () => new Date(),
  });
  ends.add('crons', () => crons.stop());
  const webhooks = startWebhooks({
    database,
    organizationId,
    rules,
    secret: config.agentsWebhookSecret ?? webhookSecret(secretKey, organizationId),
    ownUrl,
    allowPrivate: config.allowPrivateEndpoints,
    authorities,
    logger,
  });
  ends.add('webhooks', () => webhooks.stop());
  const wakes: Readonly<Record<string, () => void>> = {
    agent_runs: () => executor.wake(),
    agent_cancels: () => executor.lookAtLeases(),
    agent_ends: () => executor.lookAtEnds(),
    agent_crons: () => crons.wake(),
    agent_webhooks: () => webhooks.wake(),
  };
  const notices = await listen({
    url: databaseUrl,
    authorities,
    channels: Object.keys(wakes),
    onNotice: (channel) => wakes[channel]?.(),
    logger,
  });
  ends.add('notices', () => notices.close());
}
