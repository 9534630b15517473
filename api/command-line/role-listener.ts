import type { FastifyInstance } from 'fastify';
import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { type HealthCheck, startTelemetryServer } from '../../infra/telemetry/telemetry-server.ts';
import type { Services } from '../server/services.ts';
import { getApiAddress } from './check-port.ts';
import type { LoadedParts } from './role.ts';

/**
 * The HTTP listener of a role. It listens before the other parts of the role start. It serves the main API or, for a
 * role without the main API, metrics and readiness. Until {@link RoleListener.open} is called, `/ready` responds with
 * 503 and the state of the servers, and the main API refuses all other requests.
 */
export interface RoleListener {
  readonly url: string;
  /** The server of the main API, if the role serves it. */
  readonly mainApi?: FastifyInstance;
  /** Sets the dependency that startup waits for. `/ready` and the error STARTING report it. */
  waitFor(what: string): void;
  /**
   * Starts to accept requests. From then on, `/ready` runs `healthChecks`. `services` are the services of the main API.
   */
  open(healthChecks: readonly HealthCheck[], services?: Services): void;
  /**
   * Makes `/ready` report `draining`. The main API finishes its in-flight requests and closes. Call this method before
   * the parts of the role are shut down.
   */
  drain(): Promise<void>;
  close(): Promise<void>;
}

/** Opens the listener of a role. @throws PORT_IN_USE, HOST_UNUSABLE, METRICS_PORT_UNUSABLE */
export async function listenForRole(
  { config, logger, mainApi }: { config: Config; logger: Logger; mainApi: LoadedParts['mainApi'] },
  servers: readonly HealthCheck[],
): Promise<RoleListener> {
  let what: string | undefined = 'its servers';
  const start: HealthCheck = {
    name: 'start',
    check: async () => {
      if (what !== undefined) throw runlakeError('STARTING', { what });
    },
  };
  let healthChecks: readonly HealthCheck[] = [start, ...servers];
  const shared = {
    waitFor: (dependencyName: string) => {
      what = dependencyName;
    },
  };
  const opened = (checks: readonly HealthCheck[]) => {
    healthChecks = checks;
    what = undefined;
  };

  if (mainApi === undefined) {
    const { metricsHost: host, metricsPort: port } = config;
    const telemetry = await startTelemetryServer({ host, port, healthChecks: () => healthChecks, logger });
    return {
      ...shared,
      url: telemetry.url,
      open: opened,
      drain: async () => telemetry.startDraining(),
      close: () => telemetry.close(),
    };
  }

  // Operations read the services at each request. Until the services are complete, only health operations run.
  const services = { config, healthChecks } as Services;
  const api = await mainApi.listenHttp({
    server: {
      ...{ config, services, logger, operations: mainApi.operations },
      mounted: mainApi.createDeploymentProxy(
        { find: (slug, options) => services.replicas.find(slug, options) },
        { sessions: services },
      ),
      getAwaitedDependency: () => what,
    },
    at: getApiAddress(config),
  });
  return {
    ...shared,
    url: api.url,
    mainApi: api.server,
    open: (checks, completeServices) => {
      Object.assign(services, completeServices);
      opened(checks);
    },
    drain: async () => {
      if (what === undefined) await api.drain();
    },
    close: () => api.drain(),
  };
}
