import { availableParallelism } from 'node:os';
import { buildGraphEnvironment } from '../../infra/config/graph-environment.ts';
import { readGraphTracing } from '../../infra/config/graph-tracing.ts';
import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { openDatabase } from '../../infra/postgres/pool.ts';
import { readTrustedAuthorities } from '../../infra/tls/trusted-authorities.ts';
import { reportAgentMetrics } from '../../pipelines/agents/agent-metrics.ts';
import { Executor } from '../../pipelines/agents/execute/executor.ts';
import { createEndMarker, createFeedbackLinks } from '../../pipelines/agents/execute/publish-end.ts';
import { createTraceRun } from '../../pipelines/agents/execute/trace-run.ts';
import type { GraphsFile } from '../../pipelines/agents/graphs/graphs-file.ts';
import type { DeploymentWatch, ServedDeployment } from '../../pipelines/agents/open-deployment.ts';
import { createStreamPublisher } from '../../pipelines/agents/streams/create-stream-publisher.ts';
import type { StreamPublisher } from '../../pipelines/agents/streams/stream-types.ts';
import { createChildRunTracer } from '../../pipelines/agents/traces/child-runs.ts';
import {
  type GraphIsolation,
  openGraphIsolation,
  openWorkerAccount,
} from '../../pipelines/agents/workers/front/graph-isolation.ts';
import { type OpenWorkerPool, openWorkerPool } from '../../pipelines/agents/workers/front/worker-pool.ts';
import { maxEventBytes } from '../../pipelines/agents/workers/messages.ts';
import { isOperator } from '../../pipelines/tenants/operator.ts';
import { joinPublicUrl } from '../server/public-base.ts';
import type { Services } from '../server/services.ts';
import { type AgentsPart, getAgentServerUrl } from './check-port.ts';
import type { RoleParts } from './open-stores.ts';
import type { ShutdownSteps } from './shutdown-steps.ts';

/**
 * Maximum number of characters in the inputs and outputs of all child runs of one graph run. The trace omits inputs and
 * outputs beyond this limit. A character takes one or more bytes.
 */
const maxChildRunCharacters = 64 * 1024 ** 2;
/** Lifetime of feedback links, counted from the end of the run. */
export const feedbackLinkHours = 24;
/** Time after the end of a stateless run during which clients can rejoin its stream. It is long enough to reconnect. */
const statelessResumeMs = 120_000;

export interface AgentDeps extends RoleParts {
  readonly config: Config & { readonly agentsFile: string };
  readonly databaseUrl: string;
  /** Key that signs webhooks. Must be the same on all processes. */
  readonly secretKey: string;
  readonly accept: Services['accept'];
}

/** Parameters of the processes that run graph code. */
export interface IsolatedGraphs extends Pick<GraphIsolation, 'accounts' | 'words'> {
  readonly file: GraphsFile;
  /** Postgres URL with the account that graph code uses. */
  readonly databaseUrl: string;
}

/**
 * Opens the user ids and the Postgres account that graph code uses. At shutdown they are closed after all parts that
 * use them.
 *
 * @throws GRAPH_CODE_NOT_ISOLATED
 */
export async function isolateGraphs(
  { config, logger, databaseUrl, stores }: AgentDeps,
  file: GraphsFile,
  { deploymentId, operator, project }: ServedDeployment,
  shutdown: ShutdownSteps,
): Promise<IsolatedGraphs> {
  const { accounts, words: ofIds, close } = await openGraphIsolation(file, config);
  shutdown.add('user ids of graph code', close);
  const account = await openWorkerAccount({
    database: stores.database,
    deploymentId,
    databaseUrl,
    configuredUrl: config.agentsDatabaseUrl,
    authorities: readTrustedAuthorities(config),
    logger,
  });
  shutdown.add('account of graph code', () => account.close());
  const rows = account.isRestrictedToDeployment ? 'only rows of its deployment' : 'rows of every deployment';
  if (!account.isRestrictedToDeployment && config.agentsIsolation === 'required') {
    throw runlakeError('GRAPH_CODE_NOT_ISOLATED', {
      reason: `the Postgres account of graph code has access to ${rows}`,
    });
  }
  // Anyone with the permission `deployments:write` provides the code of such a deployment.
  const isFromControlPlane = project !== undefined;
  const isIsolated = accounts !== undefined && account.isRestrictedToDeployment;
  if (isFromControlPlane && !isIsolated && !(await isOperator(stores.database, operator))) {
    const reason = 'without isolation, Runlake runs only deployments of the organisation of the operator';
    throw runlakeError('GRAPH_CODE_NOT_ISOLATED', { reason });
  }
  const isolationDescription = `${ofIds}; in Postgres it can access ${rows}`;
  logger.info(`graph code has ${isolationDescription}: see SECURITY.md`);
  return { file, accounts, words: isolationDescription, databaseUrl: account.url };
}

/**
 * Opens the pool of processes that run graph code. In a front process, the pool has only the query worker. In a process
 * that only executes runs, it has no query worker.
 */
export async function openGraphPool(
  { config, logger }: AgentDeps,
  { file, accounts, databaseUrl }: IsolatedGraphs,
  part: AgentsPart,
  shutdown: ShutdownSteps,
): Promise<OpenWorkerPool> {
  const authorities = readTrustedAuthorities(config);
  const pool = await openWorkerPool({
    file,
    workers: part === 'front' ? 0 : config.agentsWorkers || availableParallelism(),
    runsQueries: part !== 'work',
    runsPerWorker: config.agentsRunsPerWorker,
    database: { url: databaseUrl, ...(authorities && { authorities }) },
    environment: buildGraphEnvironment(),
    accounts,
    serverUrl: part === 'work' ? config.agentsPublicUrl : getAgentServerUrl(config),
    maxEventBytes,
    maxBufferedBytes: config.agentsWorkerBufferBytes,
    heartbeatTimeoutMs: config.agentsHeartbeatTimeoutMs,
    heapMegabytes: config.agentsWorkerHeapMegabytes,
    logger,
  });
  shutdown.add('graph workers', () => pool.close(0));
  return pool;
}

/**
 * Claims runs and executes them in the processes of `pool`. Without `pool`, only requeues and publishes the runs of
 * dead processes.
 */
export function startWork(
  { config, logger, databaseUrl, stores, log: wholeLog, secretKey, accept }: AgentDeps,
  {
    servedDeployment: { deploymentId, operator },
    file,
    watch,
  }: { readonly servedDeployment: ServedDeployment; readonly file: GraphsFile; readonly watch: DeploymentWatch },
  pool: OpenWorkerPool,
  shutdown: ShutdownSteps,
): { readonly executor: Executor; readonly publisher: StreamPublisher } {
  const log = watch.dropWhenDeleted(wholeLog);
  const defaultSender = {
    workspaceId: operator.workspaceId,
    userId: operator.userId,
    keyId: operator.keyId,
  };
  const tracing = {
    accept: { ...accept, log },
    defaultSender,
    hidden: readGraphTracing(file.env),
    logger,
  };
  const childRunTracer = createChildRunTracer({
    ...tracing,
    maxRuns: config.agentsTraceChildRuns,
    maxCharacters: maxChildRunCharacters,
  });
  shutdown.add('child runs', () => childRunTracer.close());
  const publisher = createStreamPublisher({
    log,
    retentionMs: config.agentsStreamHours * 3_600_000,
    maxEventBytes,
  });
  const heartbeatDatabase = openDatabase({
    url: databaseUrl,
    authorities: readTrustedAuthorities(config),
    logger,
    timeoutMs: Math.ceil(config.agentsLeaseMs / 3),
    maxConnections: 1,
  });
  shutdown.add('heartbeats', () => heartbeatDatabase.close());
  const { publicUrl } = config;
  const links =
    publicUrl === undefined
      ? undefined
      : createFeedbackLinks({
          database: stores.database,
          secretKey,
          createUrl: (token) => joinPublicUrl(publicUrl, `/feedback/tokens/${token}`),
          validHours: feedbackLinkHours,
          defaultSender,
        });
  const executor = new Executor({
    database: stores.database,
    pool,
    publisher,
    deploymentId,
    traceRun: createTraceRun(tracing),
    childRuns: childRunTracer,
    markEndPublished: createEndMarker(stores.database, statelessResumeMs),
    feedbackLinks: links,
    logger,
    heartbeats: heartbeatDatabase,
    leaseMs: config.agentsLeaseMs,
    runTimeoutMs: config.agentsRunTimeoutMs,
    revisionId: config.agentsRevision?.id,
  });
  shutdown.add('graph runs', () => executor.stop(config.drainTimeoutMs));
  watch.onDeleted(() => executor.stop(0));
  const stopMetrics = reportAgentMetrics({ database: stores.database, deploymentId, executor, pool });
  shutdown.add('metrics of graph runs', async () => stopMetrics());
  return { executor, publisher };
}
