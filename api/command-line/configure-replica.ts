/** What the drivers that start agent servers on this machine have in common. */
import type { Config } from '../../infra/config/settings.ts';
import { findFreePorts, isPortInUse } from '../../infra/embedded/free-port.ts';
import { catalogue, type ErrorCode } from '../../infra/errors/catalogue.ts';
import { isRunlakeError, type RunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import type { ReplicaSpec } from '../../pipelines/deployments/driver.ts';
import { stripPrefix } from '../server/public-base.ts';

/** Time for the parts of a replica to stop after it has drained. */
const shutdownTimeoutMs = 5_000;

/** Returns the configuration of the agent server of a replica. */
export function configureReplica(
  config: Config,
  { slug, deploymentId, revisionId, agentsFile, environment, resources }: ReplicaSpec,
  port: number,
): Config & { readonly agentsFile: string } {
  if (agentsFile === undefined) {
    throw runlakeError('DEPLOYMENT_START_FAILED', { reason: 'The driver process does not run images' });
  }
  const publicUrl = config.publicUrl === undefined ? undefined : stripPrefix(config.publicUrl);
  return {
    ...config,
    agentsFile,
    agentsDeployment: deploymentId,
    agentsRevision: { id: revisionId, environment },
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

/**
 * Returns what a log message of an agent server adds to the log of its revision: output of graph code, and reasons of
 * warnings. Other messages are for the operator.
 */
export function toRevisionLogLine(
  { line, reason }: { readonly line?: unknown; readonly reason?: unknown },
  message: string,
  isWarning: boolean,
): string | undefined {
  if (typeof line === 'string') return line;
  return isWarning && typeof reason === 'string' ? `${message}: ${reason}` : undefined;
}

/**
 * Creates the error of a start. If the cause is in the deployment, this is DEPLOYMENT_START_FAILED, with the message of
 * `error` or else `fallbackReason`; otherwise `error` itself.
 */
export function toStartError(error: unknown, fallbackReason?: string): unknown {
  const { code, message } = (error ?? {}) as { readonly code?: string; readonly message?: string };
  const isKnown = code !== undefined && Object.hasOwn(catalogue, code);
  if (!isKnown) return fallbackReason === undefined ? error : createStartError(fallbackReason, error);
  if (catalogue[code as ErrorCode].class === 'transient' || operatorCodes.has(code)) {
    return isRunlakeError(error) ? error : runlakeError('INTERNAL', {}, { cause: error });
  }
  return isRunlakeError(error) && code === 'DEPLOYMENT_START_FAILED' ? error : createStartError(String(message), error);
}

/** Errors whose cause is not in the deployment. The start is retried. */
const operatorCodes: ReadonlySet<string> = new Set(['PORT_IN_USE', 'INTERNAL', 'DATABASE_QUERY_FAILED']);

function createStartError(reason: string, cause: unknown): RunlakeError {
  return runlakeError('DEPLOYMENT_START_FAILED', { reason: reason.replace(/\.+$/, '') }, { cause });
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
