import { createHmac } from 'node:crypto';
import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { DeploymentDriver } from '../../pipelines/deployments/driver.ts';
import { createDockerDriver } from '../../pipelines/deployments/drivers/docker-driver.ts';
import { createKubernetesDriver } from '../../pipelines/deployments/drivers/kubernetes-driver.ts';
import { stripPrefix } from '../server/public-base.ts';

/**
 * Loads the driver that runs images. Docker is found as its command does it (`DOCKER_HOST`, otherwise the local socket),
 * Kubernetes through the account of the pod or `KUBECONFIG`.
 *
 * @throws PART_UNUSABLE if its package is not installed.
 */
export async function loadImageDriver(
  name: 'docker' | 'kubernetes',
  config: Config,
  secretKey: string,
): Promise<DeploymentDriver> {
  const common = {
    // Derived from the secret key, because all hosts of an installation have it.
    installation: createHmac('sha256', secretKey).update('installation').digest('hex').slice(0, 16),
    publicUrl: config.publicUrl === undefined ? undefined : stripPrefix(config.publicUrl),
  };
  if (name === 'docker') {
    const { default: Docker } = await load('dockerode', name, () => import('dockerode'));
    return createDockerDriver({ ...common, docker: new Docker(), network: config.deploymentsDockerNetwork });
  }
  const library = await load('@kubernetes/client-node', name, () => import('@kubernetes/client-node'));
  const kubeConfig = new library.KubeConfig();
  kubeConfig.loadFromDefault();
  const namespace = kubeConfig.getContextObject(kubeConfig.getCurrentContext())?.namespace ?? 'default';
  return createKubernetesDriver(library, kubeConfig, { ...common, namespace, drainTimeoutMs: config.drainTimeoutMs });
}

async function load<Library>(
  packageName: string,
  driver: string,
  importLibrary: () => Promise<Library>,
): Promise<Library> {
  try {
    return await importLibrary();
  } catch (cause) {
    const reason = `The package ${packageName} of the driver ${driver} cannot be loaded`;
    throw runlakeError('PART_UNUSABLE', { reason, remedy: 'Install the optional dependencies.' }, { cause });
  }
}
