/** The Kubernetes objects of a replica: a Secret with its variables, a Deployment with one pod, and a Service. */
import type {
  KubernetesObject,
  V1Container,
  V1Deployment,
  V1PodSpec,
  V1Secret,
  V1Service,
} from '@kubernetes/client-node';
import { checkPod, containerName } from '../check-pod.ts';
import type { ReplicaSpec, ResourceSpec } from '../driver.ts';
import {
  buildImageEnvironment,
  type ImageDriverOptions,
  imagePort,
  nameReplica,
  requireImage,
} from './image-replica.ts';

export interface KubernetesObjectOptions extends ImageDriverOptions {
  readonly namespace: string;
  /** Time for a pod to end. */
  readonly drainTimeoutMs: number;
}

export const replicaLabels = { installation: 'runlake/installation', replica: 'runlake/replica' } as const;
/**
 * Returns the objects in the order in which they are created.
 *
 * @throws DEPLOYMENT_INVALID if `resource_spec` contains fields that are not allowed; DEPLOYMENT_START_FAILED without image
 */
export function buildObjects(
  spec: ReplicaSpec,
  options: KubernetesObjectOptions,
): readonly [V1Secret, V1Deployment, V1Service] {
  const { resources } = spec;
  checkPod(spec);
  const name = nameReplica(spec);
  const selector = { [replicaLabels.replica]: name };
  const labels = {
    ...resources.labels,
    'runlake/deployment': spec.deploymentId,
    'runlake/revision': spec.revisionId,
    'runlake/slug': spec.slug.slice(0, 63).replace(/-+$/, ''),
    [replicaLabels.installation]: options.installation,
    ...selector,
  };
  const metadata = { name, namespace: options.namespace, labels };
  return [
    {
      ...{ apiVersion: 'v1', kind: 'Secret', metadata },
      stringData: { ...buildImageEnvironment(spec, options) },
    },
    {
      ...{ apiVersion: 'apps/v1', kind: 'Deployment', metadata },
      spec: {
        replicas: 1,
        selector: { matchLabels: selector },
        template: {
          metadata: { labels, ...(resources.annotations && { annotations: { ...resources.annotations } }) },
          spec: buildPod(spec, name, options),
        },
      },
    },
    {
      ...{ apiVersion: 'v1', kind: 'Service', metadata },
      spec: { selector, ports: [{ name: 'http', port: imagePort, targetPort: imagePort }] },
    },
  ];
}

function buildPod(spec: ReplicaSpec, secretName: string, { drainTimeoutMs }: KubernetesObjectOptions): V1PodSpec {
  const { resources, secretReferences } = spec;
  const securityContext = { allowPrivilegeEscalation: false };
  // Checked by `checkPod`.
  const addContext = (containers: ResourceSpec['sidecars']) =>
    (containers ?? []).map((each) => ({ ...(each as unknown as V1Container), securityContext }));
  const probe = { httpGet: { path: '/ok', port: imagePort }, timeoutSeconds: 5 };
  const container: V1Container = {
    name: containerName,
    image: requireImage(spec, 'kubernetes'),
    ports: [{ containerPort: imagePort }],
    envFrom: [{ secretRef: { name: secretName } }],
    env: secretReferences.map(({ name, secret_name, secret_key }) => ({
      name,
      valueFrom: { secretKeyRef: { name: secret_name, key: secret_key } },
    })),
    resources: buildResources(resources),
    securityContext,
    startupProbe: { ...probe, periodSeconds: 2, failureThreshold: 300 },
    readinessProbe: { ...probe, periodSeconds: 5 },
    livenessProbe: { ...probe, periodSeconds: 10, failureThreshold: 6 },
    ...(resources.volume_mounts && { volumeMounts: resources.volume_mounts as never }),
  };
  return {
    // The variables of the services of the namespace, which belong to other deployments, may look like settings.
    enableServiceLinks: false,
    containers: [container, ...addContext(resources.sidecars)],
    ...(resources.init_containers && { initContainers: addContext(resources.init_containers) }),
    ...(resources.volumes && { volumes: resources.volumes as never }),
    ...(resources.image_pull_secrets && { imagePullSecrets: [...resources.image_pull_secrets] }),
    // Without an account that the operator names, the pod has no access to the API of the cluster.
    ...(resources.service_account_name
      ? { serviceAccountName: resources.service_account_name }
      : { automountServiceAccountToken: false }),
    terminationGracePeriodSeconds: Math.ceil(drainTimeoutMs / 1_000) + 5,
  };
}

/** Limits default to twice the request. Source: description of `resource_spec` in the control plane API. */
function buildResources({
  cpu,
  cpu_limit,
  memory_mb,
  memory_limit_mb,
}: ResourceSpec): V1Container['resources'] & object {
  const toCores = (cores: number) => `${Math.round(cores * 10) * 100}m`;
  const toBytes = (megabytes: number) => `${megabytes}Mi`;
  const cpuLimit = cpu_limit ?? (cpu ? cpu * 2 : undefined);
  const memoryLimit = memory_limit_mb ?? (memory_mb ? memory_mb * 2 : undefined);
  return {
    requests: { ...(cpu && { cpu: toCores(cpu) }), ...(memory_mb && { memory: toBytes(memory_mb) }) },
    limits: { ...(cpuLimit && { cpu: toCores(cpuLimit) }), ...(memoryLimit && { memory: toBytes(memoryLimit) }) },
  };
}

/** Identity of an object in requests. */
export type ObjectHeader = KubernetesObject & {
  readonly metadata: { readonly name: string; readonly namespace: string };
};

/** Returns the identities of the objects of a replica, in the order in which they are deleted. */
export function listObjectHeaders(name: string, namespace: string): readonly ObjectHeader[] {
  const metadata = { name, namespace };
  return [
    { apiVersion: 'apps/v1', kind: 'Deployment', metadata },
    { apiVersion: 'v1', kind: 'Service', metadata },
    { apiVersion: 'v1', kind: 'Secret', metadata },
  ];
}
