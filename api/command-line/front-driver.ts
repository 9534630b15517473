/**
 * The driver `process` with the in-process event log: a replica is an agent server inside this process, with a
 * configuration of its own. Graph code runs in worker processes, as always.
 */
import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import type { DeploymentDriver, StartedReplica } from '../../pipelines/deployments/driver.ts';
import type { Services } from '../server/services.ts';
import type { AgentDeps } from './agent-work.ts';
import { configureReplica, PortRange, respondsOk, toRevisionLogLine, toStartError } from './configure-replica.ts';
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

/** Returns a logger that also passes messages to the log of the revision; see {@link toRevisionLogLine}. */
function createReplicaLogger(logger: Logger, onLog: (line: string) => void): Logger {
  const pass = (level: 'info' | 'warn' | 'error') => (fields: unknown, message?: string) => {
    const line = toRevisionLogLine(Object(fields), message ?? level, level !== 'info');
    if (line !== undefined) onLog(line);
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
