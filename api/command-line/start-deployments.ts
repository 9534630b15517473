import { createHmac } from 'node:crypto';
import { OpenedOnce } from '../../infra/cache/opened-once.ts';
import type { Config } from '../../infra/config/settings.ts';
import { listen } from '../../infra/postgres/listen.ts';
import { readTrustedAuthorities } from '../../infra/tls/trusted-authorities.ts';
import { SourceBuilder } from '../../pipelines/deployments/build/build-source.ts';
import type { DeploymentDriver } from '../../pipelines/deployments/driver.ts';
import { startHost } from '../../pipelines/deployments/host.ts';
import { stripPrefix } from '../server/public-base.ts';
import type { Services } from '../server/services.ts';
import type { RoleParts, StoreAddresses } from './open-stores.ts';
import type { ShutdownSteps } from './shutdown-steps.ts';

export interface DeploymentHostDeps extends RoleParts {
  readonly addresses: StoreAddresses;
  readonly secretKey: string;
  readonly services: Services;
}

/** Makes this process a host of deployments: it builds revisions and runs their replicas. */
export async function startDeployments(deps: DeploymentHostDeps, shutdown: ShutdownSteps): Promise<void> {
  const { config, logger, addresses, services } = deps;
  const isOnlyHost = config.kafkaBrokers === undefined;
  const host = await startHost(
    { ...services, logger, config, builder: new SourceBuilder({ ...services, logger }), driver: createDriver(deps) },
    { isOnlyHost },
  );
  shutdown.add('deployments', () => host.stop());
  const notices = await listen({
    url: addresses.databaseUrl,
    authorities: readTrustedAuthorities(config),
    channels: ['deployments'],
    onNotice: () => host.wake(),
    logger,
  });
  shutdown.add('notices of deployments', () => notices.close());
  // Added last, so that it ends first.
  if (isOnlyHost) shutdown.add('requests to deployments', () => services.replicas.stop());
}

/** Returns the driver of the settings. Its code is loaded when the first replica starts. */
function createDriver(deps: DeploymentHostDeps): DeploymentDriver {
  // Loading fails, for example, if the engine does not respond.
  const driver = new OpenedOnce(() => loadDriver(deps));
  const { deploymentsDriver: name } = deps.config;
  return {
    name,
    start: async (spec, options) => (await driver.get()).start(spec, options),
    // Replicas of the driver `process` do not outlive their host.
    ...(name !== 'process' && {
      removeAbandoned: async (...parameters) => (await driver.get()).removeAbandoned?.(...parameters),
    }),
  };
}

async function loadDriver(deps: DeploymentHostDeps): Promise<DeploymentDriver> {
  const { config, addresses, services, secretKey } = deps;
  const { deploymentsDriver: name } = config;
  if (name !== 'process') return loadImageDriver(name, config, secretKey);
  if (config.kafkaBrokers !== undefined) return (await import('./child-driver.ts')).createChildDriver(deps);
  const { createFrontDriver } = await import('./front-driver.ts');
  const { accept, authenticator, rateLimiter } = services;
  return createFrontDriver({ ...deps, databaseUrl: addresses.databaseUrl, accept, authenticator, rateLimiter });
}

/** Timeout of a request to Docker or Kubernetes. */
const engineTimeoutMs = 30_000;

/**
 * Loads the driver that runs images. Docker is found as its command does it (`DOCKER_HOST`, otherwise the local socket),
 * Kubernetes through the account of the pod or `KUBECONFIG`.
 */
async function loadImageDriver(
  name: 'docker' | 'kubernetes',
  config: Config,
  secretKey: string,
): Promise<DeploymentDriver> {
  const common = {
    // Derived from the secret key, because all hosts of an installation have it.
    installation: createHmac('sha256', secretKey).update('installation').digest('hex').slice(0, 16),
    publicUrl: config.publicUrl === undefined ? undefined : stripPrefix(config.publicUrl),
    engineTimeoutMs,
  };
  if (name === 'docker') {
    const { createDockerDriver, findOwnNetwork } = await import('../../pipelines/deployments/drivers/docker-driver.ts');
    const { default: Docker } = await import('dockerode');
    const docker = new Docker();
    return createDockerDriver({ ...common, docker, network: await findOwnNetwork(docker, engineTimeoutMs) });
  }
  const { KubernetesDriver } = await import('../../pipelines/deployments/drivers/kubernetes-driver.ts');
  const library = await import('@kubernetes/client-node');
  const kubeConfig = new library.KubeConfig();
  kubeConfig.loadFromDefault();
  const namespace = kubeConfig.getContextObject(kubeConfig.getCurrentContext())?.namespace ?? 'default';
  return new KubernetesDriver(library, kubeConfig, { ...common, namespace, drainTimeoutMs: config.drainTimeoutMs });
}
