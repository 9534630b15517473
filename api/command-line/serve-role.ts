/**
 * Composes the parts of a role in one process.
 *
 * Start order (each part adds its shutdown step to `shutdown`): lock of the in-process log → schema → event log →
 * roll-up and sink → jobs and their workers → bulk exports → HTTP → agents → deployments → tools. `api` runs no sink,
 * roll-up or workers; `ingest` runs no exports and no API; `exports`, `agents` and `tools` run only those. HTTP listens
 * from the beginning and accepts requests when all parts are up.
 */
import type { Config } from '../../infra/config/settings.ts';
import { type DataFolder, loadOrCreateSecretKey } from '../../infra/embedded/data-folder.ts';
import { describeOutsideFolder } from '../../infra/embedded/postgres/cluster.ts';
import { isRunlakeError } from '../../infra/errors/runlake-error.ts';
import { openJobs } from '../../infra/jobs/open-jobs.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { counter } from '../../infra/telemetry/metrics.ts';
import type { HealthCheck } from '../../infra/telemetry/telemetry-server.ts';
import type { Rejection } from '../../pipelines/ingest/accept/draft.ts';
import { type BootstrapOutcome, bootstrap } from '../../pipelines/tenants/bootstrap.ts';
import { findOperatorKey, type SignInKey } from '../../pipelines/tenants/sign-in-links.ts';
import { loopbackOrigins } from '../server/cross-origin.ts';
import type { Services } from '../server/services.ts';
import { type AgentsPart, mainApiUrl } from './check-port.ts';
import { reportStarted, reportToHost, retireForHost } from './follow-host.ts';
import { prepareStores } from './migrate.ts';
import { lockDatabase, openEventLog, refuseUnstoredEvents } from './open-event-log.ts';
import type { StoreAddresses, Stores } from './open-stores.ts';
import type { LoadedParts, Role } from './role.ts';
import type { RoleListener } from './role-listener.ts';
import type { ShutdownSteps } from './shutdown-steps.ts';

/** Text that a role without the main API prints at startup. */
const work = {
  ingest: 'stores events',
  exports: 'writes bulk exports',
  agents: 'runs agents',
  tools: 'serves tools',
} as const;

const acceptedRuns = counter('runlake_runs_accepted_total', 'Posts and patches of runs that were made durable.', []);
const rejectedRuns = counter(
  'runlake_runs_rejected_total',
  'Posts and patches of runs that were rejected, by error code.',
  ['code'],
);

/** Counts the accepted and rejected runs of a request. */
function countRuns(accepted: number, rejected: readonly Rejection[]): void {
  acceptedRuns.inc(accepted);
  for (const { error } of rejected) rejectedRuns.inc({ code: error.code });
}

export interface RoleDeps {
  readonly role: Role;
  /** Modules that `loadParts` has imported for this role. */
  readonly loaded: LoadedParts;
  readonly part: AgentsPart;
  readonly config: Config;
  readonly logger: Logger;
  /** The data folder. Set if an engine is embedded. */
  readonly folder: DataFolder | undefined;
  readonly addresses: StoreAddresses;
  readonly stores: Stores;
  readonly shutdown: ShutdownSteps;
  readonly listener: RoleListener;
}

export interface ServedRole {
  /**
   * Resolves when this process must stop because another process has locked the database. Never resolves if Kafka is
   * used.
   */
  readonly replaced: Promise<void>;
  /** Accepts requests, prints the URLs and records them in the data folder. */
  open(): void;
}

/** Starts the parts of the role. @throws LOG_IN_USE, EVENTS_NOT_STORED and the errors of the parts. */
export async function serveRole(parts: RoleDeps): Promise<ServedRole> {
  const { role, part, loaded, config, logger, addresses, stores, shutdown, listener } = parts;
  const { database, clickhouse } = stores;
  const lock =
    config.kafkaBrokers === undefined ? await lockDatabase(addresses.databaseUrl, config, logger) : undefined;
  if (lock !== undefined) shutdown.add('lock', () => lock.release());
  await prepareStores(stores, logger);
  await refuseUnstoredEvents({ config, stores });
  const { log, healthChecks: logChecks } = await openEventLog({ config, logger, stores }, shutdown);
  const { mainApi, storing, exporting, agents, deployments, tools } = loaded;
  const storingChecks = storing ? await storing.startStoring({ config, logger, stores, log }, shutdown) : [];
  const jobs = await openJobs({ databaseUrl: addresses.databaseUrl, config, logger });
  shutdown.add('jobs', () => jobs.close());
  await storing?.startWorkers({ config, logger, stores, log, jobs });
  const secretKey = config.secretKey ?? loadOrCreateSecretKey(parts.folder?.path as string);
  const { databaseUrl } = addresses;
  await exporting?.startExports({ config, logger, databaseUrl, stores, log, jobs, secretKey }, shutdown);

  const healthChecks: readonly HealthCheck[] = [
    { name: 'clickhouse', check: () => clickhouse.ping() },
    { name: 'postgres', check: () => database.ping() },
    ...logChecks,
    ...storingChecks,
    { name: 'jobs', check: () => jobs.check() },
  ];
  const services = loaded.mainApiServices?.createMainApiServices(
    { config, logger, stores, addresses, log, jobs, secretKey, healthChecks, countRuns },
    shutdown,
  );
  if (services) {
    const { resealSecrets } = await import('./sealed-secrets.ts');
    await resealSecrets(database, config, { secretKey, logger });
    // Printed at once: if a later part fails, the next start finds the key and does not print it.
    printAdminKey(await bootstrap(database, config), mainApi ? listener.url : mainApiUrl(config, config.port));
  }
  const operatorKey = role === 'all' ? await findOperatorKey(database) : undefined;
  // This step is added before the agents, so that the main API ends after them.
  if (mainApi) {
    shutdown.add('HTTP', () => {
      // Requests that wait for a replica would delay the drain.
      services?.replicas.stop();
      return listener.drain();
    });
  }
  const lines: string[] = [];
  let graphCode: string | undefined;
  if (services && agents && config.agentsFile !== undefined) {
    const { accept, authenticator, rateLimiter } = services;
    const graphConfig = { ...config, agentsFile: config.agentsFile };
    const agentDeps = { config: graphConfig, logger, databaseUrl, stores, log, secretKey, accept };
    const started = await serveAgents(agents, part, { ...agentDeps, authenticator, rateLimiter }, shutdown);
    graphCode = started.graphCode;
    lines.push(started.line, `Graph code has ${graphCode}`);
  }
  if (services && deployments) {
    const hostDeps = { config, logger, addresses, stores, log, secretKey, services };
    await deployments.startDeployments(hostDeps, shutdown);
    if (role === 'agents') lines.push('Runlake builds and runs deployments');
  }
  if (services && tools) {
    const endpoint = mainApiUrl(config, mainApi ? Number(new URL(listener.url).port) : config.port);
    const forTools = { config, logger, services, mainApi: listener.mainApi, endpoint };
    const { url } = await tools.startTools(forTools, shutdown);
    lines.push(`Runlake serves tools at ${url}/mcp  (Model Context Protocol)`);
  }
  if (!mainApi) shutdown.add('readiness', () => listener.drain());
  return {
    replaced: lock?.lost ?? new Promise(() => undefined),
    open() {
      listener.open(healthChecks, services);
      announceStart(parts, { services, operatorKey, graphCode, lines });
    },
  };
}

/** Starts the part of the agent server that this process runs. Returns the line to print when the process accepts requests. */
async function serveAgents(
  agents: NonNullable<LoadedParts['agents']>,
  part: AgentsPart,
  deps: Parameters<typeof agents.startAgents>[0],
  shutdown: ShutdownSteps,
): Promise<{ readonly graphCode: string; readonly line: string }> {
  if (part === 'work') {
    return { ...(await agents.startAgentWork(deps, shutdown)), line: 'Runlake executes graph runs' };
  }
  const started = await agents.startAgents(deps, part, shutdown).catch((error: unknown) => {
    if (isRunlakeError(error)) reportToHost(error);
    throw error;
  });
  const { url, graphCode } = started;
  reportStarted();
  retireForHost(() => started.retire(deps.config.drainTimeoutMs));
  return { graphCode, line: `Runlake runs agents at ${url}  (API description: ${url}/docs)` };
}

interface StartedParts {
  readonly services: Services | undefined;
  readonly operatorKey: SignInKey | undefined;
  readonly graphCode: string | undefined;
  readonly lines: readonly string[];
}

/** Prints the URLs and what else the user needs to know, and records the URLs in the data folder for other commands. */
function announceStart(
  { role, loaded, config, folder, addresses, listener: { url } }: RoleDeps,
  { services, operatorKey, graphCode, lines }: StartedParts,
): void {
  if (role !== 'all' && role !== 'api') console.log(`Runlake ${work[role]}  (metrics and readiness: ${url})`);
  if (loaded.mainApi) {
    folder?.writeRunFile({ url, ...addresses, graphCode }, config);
    console.log(`Runlake answers at ${url}  (API description: ${url}/docs)`);
    // Other users of the network could see the link on its way.
    if (operatorKey !== undefined && loopbackOrigins.includes(url)) {
      console.log(`Open ${url}/signin#once=${services?.signInLinks.issue(operatorKey)}  (signs in once)`);
    }
  }
  for (const line of lines) console.log(line);
  const outside = folder && config.databaseUrl === undefined ? describeOutsideFolder(folder.path) : undefined;
  if (outside !== undefined) console.log(outside);
}

/** Prints what this start has done with the admin key. A created key is shown only this once. */
function printAdminKey(outcome: BootstrapOutcome, url: string): void {
  switch (outcome.kind) {
    case 'created':
      if (outcome.chosen) console.log('The admin key is the value of RUNLAKE_BOOTSTRAP_API_KEY.');
      else {
        console.log(`Admin key, shown this once: ${outcome.key}`);
        console.log('To trace a program that uses the langsmith SDK, start it with these:');
        console.log(`  LANGSMITH_TRACING=true LANGSMITH_ENDPOINT=${url} LANGSMITH_API_KEY=${outcome.key}`);
      }
      break;
    case 'key-added':
      console.log('RUNLAKE_BOOTSTRAP_API_KEY was added as an admin key.');
      break;
    case 'key-revoked':
      console.log('RUNLAKE_BOOTSTRAP_API_KEY is a revoked key and stays revoked.');
      break;
    case 'present':
      break;
    default:
      outcome satisfies never;
  }
}
