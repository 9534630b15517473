/**
 * The driver `process` with the in-process event log: a replica is an agent server inside this process, with a
 * configuration of its own. Graph code runs in worker processes, as always.
 */
import type { Config } from '../../infra/config/settings.ts';
import { findFreePorts, isPortInUse } from '../../infra/embedded/free-port.ts';
import { isRunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import type { DeploymentDriver, ReplicaSpec, StartedReplica } from '../../pipelines/deployments/driver.ts';
import type { Services } from '../server/services.ts';
import type { AgentDeps } from './agent-work.ts';
import { ShutdownSteps } from './shutdown-steps.ts';
import { startAgents } from './start-agents.ts';

export type FrontDeps = Omit<AgentDeps, 'config'> &
  Pick<Services, 'authenticator' | 'rateLimiter'> & { readonly config: Config };

/** Time for the parts of a replica to stop after it has drained. */
const shutdownTimeoutMs = 5_000;

export function createFrontDriver(deps: FrontDeps): DeploymentDriver {
  const ports = new PortRange(deps.config.deploymentsPorts);
  return {
    name: 'process',
    async start(spec, { signal, onLog }) {
      const port = await ports.take();
      const shutdown = new ShutdownSteps();
      shutdown.add('port', () => ports.release(port));
      const bindings = { deployment: spec.slug, revisionId: spec.revisionId, replica: spec.number };
      const logger = createReplicaLogger(deps.logger.child(bindings), onLog);
      const abort = () => void shutdown.run(logger);
      signal.addEventListener('abort', abort, { once: true });
      try {
        const config = configureReplica(deps.config, spec, port);
        const { url, retire } = await startAgents({ ...deps, config, logger }, 'both', shutdown);
        signal.throwIfAborted();
        if (!(await respondsOk(url, signal))) {
          throw runlakeError('DEPLOYMENT_START_FAILED', { reason: 'The agent server does not respond to GET /ok' });
        }
        return createReplica(url, retire, () => shutdown.run(logger));
      } catch (error) {
        await shutdown.run(logger);
        signal.throwIfAborted();
        throw toStartError(error);
      } finally {
        signal.removeEventListener('abort', abort);
      }
    },
  };
}

function createReplica(
  url: string,
  retire: (timeoutMs: number) => Promise<void>,
  shutDown: () => Promise<void>,
): StartedReplica {
  let stopping: Promise<void> | undefined;
  return {
    url,
    isHealthy: (signal) => respondsOk(url, signal),
    stop: (drainMs) => (stopping ??= retire(drainMs).then(shutDown)),
    // It has no process of its own; its worker processes are restarted by their pool.
    ended: new Promise(() => undefined),
  };
}

/** Returns the configuration of the agent server of a replica. */
export function configureReplica(
  config: Config,
  { slug, deploymentId, revisionId, agentsFile, environment, resources }: ReplicaSpec,
  port: number,
): Config & { readonly agentsFile: string } {
  if (agentsFile === undefined) {
    throw runlakeError('DEPLOYMENT_START_FAILED', { reason: 'The driver process does not run images' });
  }
  const publicUrl = config.publicUrl?.replace(/\/+$/, '').replace(/\/api(?:\/v1)?$/, '');
  return {
    ...config,
    agentsFile,
    agentsDeployment: deploymentId,
    agentsRevision: revisionId,
    agentsEnvironment: JSON.stringify(environment),
    agentsHost: '127.0.0.1',
    agentsPort: port,
    agentsPublicUrl: publicUrl && `${publicUrl}/deployments/${slug}`,
    // A configured account is for the deployment of RUNLAKE_AGENTS_FILE; each replica gets an account of its own.
    agentsDatabaseUrl: undefined,
    agentsWorkers: resources.cpu == null ? config.agentsWorkers || 1 : Math.ceil(resources.cpu),
    agentsWorkerHeapMegabytes: resources.memory_mb ?? config.agentsWorkerHeapMegabytes,
    drainTimeoutMs: Math.min(config.drainTimeoutMs, shutdownTimeoutMs),
  };
}

/** Whether the agent server responds. Never rejects. */
export async function respondsOk(url: string, signal: AbortSignal): Promise<boolean> {
  try {
    const response = await fetch(`${url}/ok`, { signal });
    await response.body?.cancel();
    return response.ok;
  } catch {
    return false;
  }
}

/** Errors of the start whose cause is in the deployment become DEPLOYMENT_START_FAILED. */
function toStartError(error: unknown): unknown {
  if (!isRunlakeError(error) || error.class === 'transient' || error.code === 'DEPLOYMENT_START_FAILED') return error;
  if (error.code === 'PORT_IN_USE' || error.code === 'INTERNAL' || error.code === 'DRAINING') return error;
  return runlakeError('DEPLOYMENT_START_FAILED', { reason: error.message.replace(/\.$/, '') }, { cause: error });
}

/** Ports for replicas: of the configured range, otherwise any free port. */
export class PortRange {
  readonly #range: readonly [first: number, last: number] | undefined;
  readonly #used = new Set<number>();

  constructor(range: string | undefined) {
    const [first = 0, last = 0] = range?.split('-').map(Number) ?? [];
    this.#range = range === undefined ? undefined : [first, last];
  }

  /** Returns a free port that this process does not use. @throws DEPLOYMENT_PORTS_USED */
  async take(): Promise<number> {
    if (this.#range === undefined) {
      const [port = 0] = await findFreePorts(1);
      return port;
    }
    const [first, last] = this.#range;
    for (let port = first; port <= last; port += 1) {
      if (this.#used.has(port)) continue;
      this.#used.add(port);
      if (!(await isPortInUse(port))) return port;
      this.#used.delete(port);
    }
    throw runlakeError('DEPLOYMENT_PORTS_USED', { ports: `${first}-${last}` });
  }

  release(port: number): void {
    this.#used.delete(port);
  }
}

/**
 * Returns a logger that also passes the output of graph code, and the reasons of warnings, to the log of the revision.
 * Other messages are for the operator.
 */
function createReplicaLogger(logger: Logger, onLog: (line: string) => void): Logger {
  const pass = (level: 'info' | 'warn' | 'error') => (fields: unknown, message?: string) => {
    const { line, reason } = (typeof fields === 'object' && fields !== null ? fields : {}) as Record<string, unknown>;
    if (typeof line === 'string') onLog(line);
    else if (level !== 'info' && typeof reason === 'string') onLog(`${message ?? level}: ${reason}`);
    (logger[level] as (fields: unknown, message?: string) => void)(fields, message);
  };
  // Fastify uses further methods of the logger.
  return Object.assign(Object.create(logger) as Logger, {
    info: pass('info'),
    warn: pass('warn'),
    error: pass('error'),
    child: (bindings: object) => createReplicaLogger(logger.child(bindings), onLog),
  });
}
