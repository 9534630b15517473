import { createHmac } from 'node:crypto';
import type { Config } from '../../infra/config/settings.ts';
import type { DeploymentDriver } from '../../pipelines/deployments/driver.ts';
import { createDockerDriver } from '../../pipelines/deployments/drivers/docker-driver.ts';
import { createKubernetesDriver } from '../../pipelines/deployments/drivers/kubernetes-driver.ts';
import { stripPrefix } from '../server/public-base.ts';

/**
 * Loads the driver that runs images. Docker is found as its command does it (`DOCKER_HOST`, otherwise the local socket),
 * Kubernetes through the account of the pod or `KUBECONFIG`.
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
    const { default: Docker } = await import('dockerode');
    return createDockerDriver({ ...common, docker: new Docker(), network: config.deploymentsDockerNetwork });
  }
  const library = await import('@kubernetes/client-node');
  const kubeConfig = new library.KubeConfig();
  kubeConfig.loadFromDefault();
  const namespace = kubeConfig.getContextObject(kubeConfig.getCurrentContext())?.namespace ?? 'default';
  return createKubernetesDriver(library, kubeConfig, { ...common, namespace, drainTimeoutMs: config.drainTimeoutMs });
}
