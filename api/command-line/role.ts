import type { Config } from '../../infra/config/settings.ts';
import { readSecretKey } from '../../infra/embedded/data-folder.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { AgentsPart } from './check-port.ts';
import { embedsEngines } from './open-stores.ts';

export type Role = 'all' | 'api' | 'ingest' | 'exports' | 'agents' | 'tools';

/**
 * Checks that the settings which the role requires are set. Each setting is already validated on its own.
 *
 * @throws ADDRESS_REQUIRED if a role other than `all` lacks the address of a server; INVALID_CONFIG if no engine is
 *   embedded and no secret key is set, or if two servers of the role have the same port. Without an embedded engine,
 *   the data folder may not outlive the process, and a key in the folder could be lost.
 */
export function checkRole(role: Role, config: Config, part: AgentsPart = 'both'): void {
  const needed = {
    RUNLAKE_KAFKA_BROKERS: config.kafkaBrokers,
    RUNLAKE_SCHEMA_REGISTRY_URL: config.schemaRegistryUrl,
    RUNLAKE_CLICKHOUSE_URL: config.clickhouseUrl,
    RUNLAKE_DATABASE_URL: config.databaseUrl,
  };
  const missing = Object.entries(needed).flatMap(([variable, value]) => (value === undefined ? [variable] : []));
  if (role !== 'all' && missing.length > 0) {
    throw runlakeError('ADDRESS_REQUIRED', { role, variables: missing.join(', ') });
  }
  if (!embedsEngines(config) && config.secretKey === undefined) {
    const errors = '  - RUNLAKE_SECRET_KEY is required if both stores have addresses (no embedded engine).';
    throw runlakeError('INVALID_CONFIG', { count: 1, errors });
  }
  const errors = findPortConflicts(role, config, part);
  if (errors.length > 0) {
    throw runlakeError('INVALID_CONFIG', {
      count: errors.length,
      errors: errors.map((each) => `  - ${each}`).join('\n'),
    });
  }
}

/** Returns an error for each two servers of the role that would listen on the same port. */
function findPortConflicts(role: Role, config: Config, part: AgentsPart): string[] {
  const { host, port, metricsHost, metricsPort, agentsHost, agentsPort, toolsHost, toolsPort } = config;
  const main = { variable: 'RUNLAKE_PORT', host, port };
  const metrics = { variable: 'RUNLAKE_METRICS_PORT', host: metricsHost, port: metricsPort };
  const agents = { variable: 'RUNLAKE_AGENTS_PORT', host: agentsHost, port: agentsPort };
  const tools = { variable: 'RUNLAKE_TOOLS_PORT', host: toolsHost, port: toolsPort };
  const servers = [
    role === 'all' || role === 'api' ? main : metrics,
    ...(servesAgents(role, config) && part !== 'work' ? [agents] : []),
    ...(servesTools(role) ? [tools] : []),
  ];
  const includes = (host: string, other: string) =>
    host === other || host === '::' || (host === '0.0.0.0' && !other.includes(':'));
  return servers.flatMap((one, index) =>
    servers
      .slice(index + 1)
      .filter((other) => other.port === one.port && one.port !== 0)
      .filter((other) => includes(one.host, other.host) || includes(other.host, one.host))
      .map((other) => `${one.variable} and ${other.variable} must not both be ${one.port}`),
  );
}

/**
 * Finds the secret key of an instance for a command that runs alongside it: the configured key or, if engines are
 * embedded, the key in the data folder.
 *
 * @returns undefined if neither is known.
 */
export function findSecretKey(config: Config): string | undefined {
  return config.secretKey ?? (embedsEngines(config) ? readSecretKey(config.dataDir) : undefined);
}

/** Returns true if this process runs an agent server. */
export function servesAgents(role: Role, { agentsFile }: Config): boolean {
  return agentsFile !== undefined && (role === 'all' || role === 'agents');
}

/** Returns true if this process builds and runs the deployments of the control plane. */
function hostsDeployments(role: Role, { agentsFile }: Config): boolean {
  return role === 'all' || (role === 'agents' && agentsFile === undefined);
}

/** Returns true if this process runs a tool server. */
export function servesTools(role: Role): boolean {
  return role === 'all' || role === 'tools';
}

export type LoadedParts = Awaited<ReturnType<typeof loadParts>>;

/** Loads only the code that the role needs, because loading all code adds a second to each startup. */
export async function loadParts(role: Role, config: Config) {
  const isAll = role === 'all';
  const servesMainApi = isAll || role === 'api';
  const runsGraphs = servesAgents(role, config);
  const isHost = hostsDeployments(role, config);
  const [mainApi, storing, exporting, agents, deployments, tools, mainApiServices] = await Promise.all([
    servesMainApi ? loadMainApi() : undefined,
    isAll || role === 'ingest' ? loadStoring() : undefined,
    isAll || role === 'exports' ? import('./start-exports.ts') : undefined,
    runsGraphs ? import('./start-agents.ts') : undefined,
    isHost ? import('./start-deployments.ts') : undefined,
    servesTools(role) ? import('./start-tools.ts') : undefined,
    servesMainApi || runsGraphs || isHost || servesTools(role) ? import('./main-api-services.ts') : undefined,
  ]);
  return { mainApi, storing, exporting, agents, deployments, tools, mainApiServices };
}

async function loadStoring() {
  const [{ startStoring }, { startWorkers }] = await Promise.all([
    import('./start-storing.ts'),
    import('./start-workers.ts'),
  ]);
  return { startStoring, startWorkers };
}

async function loadMainApi() {
  const [{ listenHttp }, { operations }, { createDeploymentProxy }] = await Promise.all([
    import('./serve-http.ts'),
    import('../main/operations.ts'),
    import('../control-plane/proxy.ts'),
  ]);
  return { listenHttp, operations, createDeploymentProxy };
}
