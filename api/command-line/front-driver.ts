/**
 * The driver `process` with the in-process event log: a replica is an agent server inside this process, with a
 * configuration of its own. Graph code runs in worker processes, as always.
 */
import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import type { DeploymentDriver, StartedReplica } from '../../pipelines/deployments/driver.ts';
import { createMask } from '../../pipelines/deployments/mask-secrets.ts';
import { respondsOk } from '../../pipelines/deployments/responds-ok.ts';
import type { Services } from '../server/services.ts';
import type { AgentDeps } from './agent-work.ts';
import { configureReplica, PortRange, toRevisionLogLine, toStartError } from './configure-replica.ts';
import { ShutdownSteps } from './shutdown-steps.ts';
import { startAgents } from './start-agents.ts';

export type FrontDeps = Omit<AgentDeps, 'config'> &
  Pick<Services, 'authenticator' | 'rateLimiter'> & { readonly config: Config };

export function createFrontDriver(deps: FrontDeps): DeploymentDriver {
  const ports = new PortRange(deps.config.deploymentsPortRange);
  return {
    name: 'process',
    async start(spec, { signal, onLog }) {
      const port = await ports.take();
      const shutdown = new ShutdownSteps();
      shutdown.add('port', () => ports.release(port));
      const bindings = { deployment: spec.slug, revisionId: spec.revisionId, replica: spec.number };
      const mask = createMask(Object.values(spec.environment));
      const logger = createReplicaLogger(deps.logger.child(bindings), { mask, onLog });
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

/**
 * Returns a logger that also passes messages to the log of the revision; see {@link toRevisionLogLine}. Secrets are
 * masked in both logs.
 */
export function createReplicaLogger(
  logger: Logger,
  to: { readonly mask: (text: string) => string; readonly onLog: (line: string) => void },
): Logger {
  const createMethod = (level: 'info' | 'warn' | 'error') => (fields: unknown, message?: string) => {
    const masked = maskFields(fields, to.mask);
    const line = toRevisionLogLine(Object(masked), message ?? level, level !== 'info');
    if (line !== undefined) to.onLog(line);
    (logger[level] as (fields: unknown, message?: string) => void)(masked, message);
  };
  // Fastify uses further methods of the logger.
  return Object.assign(Object.create(logger) as Logger, {
    info: createMethod('info'),
    warn: createMethod('warn'),
    error: createMethod('error'),
    child: (bindings: object) => createReplicaLogger(logger.child(bindings), to),
  });
}

/** Masks the fields that can contain text of graph code. */
function maskFields(fields: unknown, mask: (text: string) => string): unknown {
  const { line, reason } = Object(fields) as { readonly line?: unknown; readonly reason?: unknown };
  if (typeof line !== 'string' && typeof reason !== 'string') return fields;
  return {
    ...(fields as object),
    ...(typeof line === 'string' && { line: mask(line) }),
    ...(typeof reason === 'string' && { reason: mask(reason) }),
  };
}
