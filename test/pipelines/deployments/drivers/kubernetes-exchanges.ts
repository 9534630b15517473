/** Exchanges with the API of a cluster, written after the reference of Kubernetes 1.32; see `recorded-api.ts`. */
import * as library from '@kubernetes/client-node';
import { Agent, buildConnector, getGlobalDispatcher, setGlobalDispatcher } from 'undici';
import { afterEach } from 'vitest';
import type { ReplicaSpec } from '../../../../pipelines/deployments/driver.ts';
import { KubernetesDriver } from '../../../../pipelines/deployments/drivers/kubernetes-driver.ts';
import { startReplica } from '../../../api/control-plane/open-proxy.ts';
import { commonSpec, createStartOptions, type Exchange, name, openRecordedApi } from './recorded-api.ts';

export const pod = `${name}-5d9c-x1`;

export const spec: ReplicaSpec = {
  ...commonSpec,
  environment: { MODEL_KEY: 'secret' },
  secretReferences: [{ name: 'DB', secret_name: 'trips-db', secret_key: 'url' }],
  resources: {
    ...{ cpu: 0.25, cpu_limit: 2, memory_mb: 256 },
    labels: { team: 'a' },
    annotations: { note: 'b' },
    image_pull_secrets: [{ name: 'registry' }],
    volumes: [{ name: 'cache', emptyDir: {} }],
    volume_mounts: [{ name: 'cache', mountPath: '/cache' }],
    sidecars: [{ name: 'proxy', image: 'proxy:1' }],
  },
};

const resource = (kind: string, plural: string) => ({
  name: plural,
  singularName: '',
  namespaced: true,
  kind,
  verbs: [],
});
const discovery: readonly Exchange[] = [
  {
    request: 'GET /api/v1',
    body: {
      ...{ kind: 'APIResourceList', groupVersion: 'v1' },
      resources: [resource('Secret', 'secrets'), resource('Service', 'services')],
    },
    times: 'any',
  },
  {
    request: 'GET /apis/apps/v1',
    body: {
      ...{ kind: 'APIResourceList', groupVersion: 'apps/v1' },
      resources: [resource('Deployment', 'deployments')],
    },
    times: 'any',
  },
];
export const paths = {
  secret: `/api/v1/namespaces/agents/secrets/${name}`,
  deployment: `/apis/apps/v1/namespaces/agents/deployments/${name}`,
  service: `/api/v1/namespaces/agents/services/${name}`,
};
export const apply = (path: string, sends: object = {}): Exchange => ({
  request: `PATCH ${path}?fieldManager=runlake&force=true`,
  sends: { metadata: { name, labels: { 'runlake/replica': name } }, ...sends },
  body: { metadata: { name } },
});
export const applied = [apply(paths.secret), apply(paths.deployment), apply(paths.service)];
export const listPods = (items: object[], times: Exchange['times'] = 1): Exchange => ({
  request: `GET /api/v1/namespaces/agents/pods?labelSelector=runlake/replica=${name}`,
  body: { kind: 'PodList', apiVersion: 'v1', metadata: {}, items },
  times,
});
/** Deployments of the replica, one for each list of conditions. */
export const listDeployments = (conditions: object[][]): Exchange => ({
  request: `GET /apis/apps/v1/namespaces/agents/deployments?labelSelector=runlake/replica=${name}`,
  body: {
    ...{ kind: 'DeploymentList', apiVersion: 'apps/v1', metadata: {} },
    items: conditions.map((each) => ({ metadata: { name }, status: { conditions: each } })),
  },
});
export const readyPod = {
  metadata: { name: pod },
  status: { phase: 'Running', conditions: [{ type: 'Ready', status: 'True' }], containerStatuses: [] },
};
export const waitingPod = (waiting: object, restartCount = 0) => ({
  metadata: { name: pod },
  status: {
    conditions: [{ type: 'Ready', status: 'False' }],
    containerStatuses: [{ name: 'agent-server', restartCount, state: { waiting } }],
  },
});
export const never = new Promise(() => undefined);
export const lineTime = (second: number) => `2026-11-27T10:00:0${second}.123456789Z`;
export const follow = (from: string, body: string, podName = pod): Exchange => ({
  request: `GET /api/v1/namespaces/agents/pods/${podName}/log?container=agent-server&follow=true&pretty=true&previous=false${from}&timestamps=true`,
  contentType: 'text/plain',
  body,
  until: never,
});
export const followed = follow('&tailLines=20', `${lineTime(1)} ready\n`);
const deleted = (path: string): Exchange => ({
  request: `DELETE ${path}?propagationPolicy=Background`,
  body: { kind: 'Status', status: 'Success' },
});
export const removedObjects = [deleted(paths.deployment), deleted(paths.service), deleted(paths.secret)];
export const killedPods: Exchange = {
  request: `DELETE /api/v1/namespaces/agents/pods?gracePeriodSeconds=0&labelSelector=runlake/replica=${name}`,
  body: { kind: 'Status', status: 'Success' },
};

const closers: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

/**
 * Starts an agent server that is reached under every name, as the DNS of a cluster would resolve that of the Service.
 *
 * @param isReachable whether it responds.
 */
export async function startService(isReachable: () => boolean = () => true): Promise<string[]> {
  const replica = await startReplica((request, response) =>
    response.writeHead(request.url === '/ok' && isReachable() ? 200 : 404).end(),
  );
  const { port } = new URL(replica.url);
  const hosts: string[] = [];
  const connector = buildConnector({});
  const dispatcher = new Agent({
    connect: (options, callback) => {
      hosts.push(`${options.hostname}:${options.port}`);
      connector({ ...options, hostname: '127.0.0.1', host: '127.0.0.1', port }, callback);
    },
  });
  const former = getGlobalDispatcher();
  setGlobalDispatcher(dispatcher);
  closers.push(async () => {
    setGlobalDispatcher(former);
    await dispatcher.destroy();
    await replica.close();
  });
  return hosts;
}

/** Opens a driver whose cluster is the recorded API. */
export async function open(exchanges: readonly Exchange[], { engineTimeoutMs = 60_000 } = {}) {
  const api = await openRecordedApi([...exchanges, ...discovery]);
  closers.push(() => api.close());
  const kubeConfig = new library.KubeConfig();
  kubeConfig.loadFromClusterAndUser(
    { name: 'recorded', server: `http://127.0.0.1:${api.port}`, skipTLSVerify: true },
    { name: 'runlake' },
  );
  const driver = new KubernetesDriver(library, kubeConfig, {
    ...{ namespace: 'agents', installation: 'inst', publicUrl: undefined, drainTimeoutMs: 20_000, engineTimeoutMs },
  });
  return { api, driver, ...createStartOptions() };
}
