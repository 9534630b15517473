import type { Config } from '../../infra/config/settings.ts';
import { fault } from '../../infra/errors/runlake-error.ts';

export type Role = 'all' | 'api' | 'ingest' | 'exports' | 'agents';

/** What of the agent server a process is: `front` answers HTTP and takes no runs up, `work` executes runs and answers nobody. */
export type AgentsPart = 'both' | 'front' | 'work';

/**
 * What a role cannot do without, beyond what the settings say each by itself.
 *
 * @throws ADDRESS_REQUIRED where a role that is to meet others was not told where; INVALID_CONFIG where nothing is embedded and
 *   no secret key is set: nothing says then that the data folder outlives the process, and a key kept there could be lost.
 */
export function checkRole(role: Role, config: Config): void {
  const needed = {
    RUNLAKE_KAFKA_BROKERS: config.kafkaBrokers,
    RUNLAKE_SCHEMA_REGISTRY_URL: config.schemaRegistryUrl,
    RUNLAKE_CLICKHOUSE_URL: config.clickhouseUrl,
    RUNLAKE_DATABASE_URL: config.databaseUrl,
  };
  const missing = Object.entries(needed).flatMap(([variable, value]) => (value === undefined ? [variable] : []));
  if (role !== 'all' && missing.length > 0) {
    throw fault('ADDRESS_REQUIRED', { role, variables: missing.join(', ') });
  }
  if (role === 'agents' && config.agentsFile === undefined) {
    throw fault('ADDRESS_REQUIRED', { role, variables: 'RUNLAKE_AGENTS_FILE' });
  }
  if (!embedsEngines(config) && config.secretKey === undefined) {
    const faults = '  - RUNLAKE_SECRET_KEY is required where both stores have addresses: no engine is embedded.';
    throw fault('INVALID_CONFIG', { count: 1, faults });
  }
}

/** Whether this process starts an engine, and so needs the data folder. */
export function embedsEngines({ clickhouseUrl, databaseUrl }: Config): boolean {
  return clickhouseUrl === undefined || databaseUrl === undefined;
}

/** Whether this process runs graphs and answers for them. */
export function servesAgents(role: Role, { agentsFile }: Config): boolean {
  return agentsFile !== undefined && (role === 'all' || role === 'agents');
}
