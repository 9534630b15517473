/**
 * Runs images as pods of a Kubernetes cluster, each replica as a Deployment with one pod and a Service.
 *
 * Invariant: the objects of a replica have its name, which contains the revision and the number. They are applied on the
 * server side, so that a host that starts the same replica again changes nothing and interrupts nothing. The cluster
 * restarts pods; a replica ends only when it is stopped.
 *
 *   1. Secret, Deployment and Service are applied.
 *   2. The replica has started when its pod is ready and `/ok` responds through the Service, whose name only processes in
 *      the cluster can resolve. A pod that cannot start is the reason of a failure, with the last lines of its log.
 *   3. The log of its pods is passed on. It is opened again when it ends, which it does with a container or a connection.
 *   4. To stop it, its objects are deleted. The cluster sends SIGTERM, and SIGKILL after the drain time.
 */

import type { Configuration, KubeConfig, V1ContainerStatus, V1Pod } from '@kubernetes/client-node';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { poll } from '../../../infra/timeouts/poll.ts';
import { raceWithAbort } from '../../../infra/timeouts/with-timeout.ts';
import { containerName } from '../check-pod.ts';
import type { DeploymentDriver, ReplicaSpec, StartedReplica, StartOptions } from '../driver.ts';
import { respondsOk } from '../responds-ok.ts';
import {
  createTimeoutError,
  imagePort,
  isRefused,
  isStartTimeout,
  mustRemove,
  nameReplica,
  removeEach,
  startFailed,
  waitUntilOk,
} from './image-replica.ts';
import { followPodLog, maxLogLines } from './kubernetes-log.ts';
import { buildObjects, type KubernetesObjectOptions, listObjectHeaders, replicaLabels } from './kubernetes-objects.ts';

export type KubernetesLibrary = typeof import('@kubernetes/client-node');

const fieldManager = 'runlake';
const stopPollMs = 500;
/** Timeout of `/ok` in a health check, which leaves time to ask the cluster. */
const okTimeoutMs = 2_500;
/** Time for the cluster to remove a pod after its drain time. */
const removalTimeoutMs = 15_000;

/** Reasons of waiting containers that do not start without a change. Source: kubelet. */
const failureReasons: ReadonlySet<string> = new Set([
  ...['ErrImagePull', 'ImagePullBackOff', 'InvalidImageName', 'ErrImageNeverPull'],
  ...['CreateContainerConfigError', 'CreateContainerError', 'RunContainerError', 'CrashLoopBackOff'],
]);

/** `library` is passed, because it is loaded only if the driver is configured. */
export function createKubernetesDriver(
  library: KubernetesLibrary,
  kubeConfig: KubeConfig,
  options: KubernetesObjectOptions,
): DeploymentDriver {
  const configuration = configureClient(library, kubeConfig, options);
  const objects = new library.KubernetesObjectApi(configuration);
  const core = new library.CoreV1Api(configuration);
  const apps = new library.AppsV1Api(configuration);
  const { namespace } = options;

  const select = (name: string) => ({ namespace, labelSelector: `${replicaLabels.replica}=${name}` });
  const listPods = async (name: string): Promise<readonly V1Pod[]> =>
    (await core.listNamespacedPod(select(name))).items;

  const ignoreMissing = (error: unknown) => {
    if (!(error instanceof library.ApiException) || error.code !== 404) throw error;
  };

  async function removeReplica(name: string, drainMs: number): Promise<void> {
    for (const header of listObjectHeaders(name, namespace))
      await objects.delete(header, undefined, undefined, undefined, undefined, 'Background').catch(ignoreMissing);
    const deletePods = () => core.deleteCollectionNamespacedPod({ ...select(name), gracePeriodSeconds: 0 });
    if (drainMs === 0) await deletePods();
    const isGone = async () => (await listPods(name)).length === 0;
    const timing = { intervalMs: stopPollMs, timeoutMs: drainMs + removalTimeoutMs };
    if (!(await poll(isGone, timing))) await deletePods();
  }

  async function readLastLines(pod: string, previous: boolean): Promise<string> {
    const request = { name: pod, namespace, container: containerName, tailLines: maxLogLines, previous };
    return core.readNamespacedPodLog(request).catch(() => '');
  }

  /** Why the cluster does not run the pod of a replica, for example for lack of a node or because of a quota. */
  async function findObstacle(name: string, pods: readonly V1Pod[]): Promise<string | undefined> {
    if (pods.length > 0) return findMessage(findNewest(pods)?.status?.conditions, 'PodScheduled', 'False');
    const { items } = await apps.listNamespacedDeployment(select(name));
    return findMessage(items[0]?.status?.conditions, 'ReplicaFailure', 'True');
  }

  /** Resolves when a pod of the replica is ready. @throws DEPLOYMENT_START_FAILED; the reason of the signal */
  async function awaitReady(name: string, { signal, onLog }: StartOptions): Promise<void> {
    let shown: string | undefined;
    const attempt = async () => {
      const pods = await raceWithAbort(listPods(name), signal);
      for (const pod of pods) {
        const failed = findFailure(pod);
        if (failed) {
          const reading = readLastLines(pod.metadata?.name ?? '', failed.restartCount > 0);
          const lines = await raceWithAbort(reading, signal);
          throw startFailed([`The pod cannot start: ${failed.reason}`, lines.trimEnd()].join('\n').trimEnd());
        }
        if (isReady(pod)) return true;
      }
      const obstacle = await raceWithAbort(findObstacle(name, pods), signal);
      if (obstacle !== undefined && obstacle !== shown) onLog(`The pod does not start yet: ${obstacle}`);
      shown = obstacle;
      return false;
    };
    await poll(attempt, { intervalMs: stopPollMs, timeoutMs: Number.MAX_SAFE_INTEGER, signal });
    signal.throwIfAborted();
  }

  /**
   * Returns whether the replica responds. If it does not, returns whether a pod is ready in the cluster, because the
   * network of this host may have failed; if the cluster does not answer either, returns true.
   */
  async function isHealthy(name: string, url: string, signal: AbortSignal): Promise<boolean> {
    if (await respondsOk(url, AbortSignal.any([signal, AbortSignal.timeout(okTimeoutMs)]))) return true;
    const pods = await raceWithAbort(listPods(name), signal).catch(() => undefined);
    return pods?.some(isReady) ?? true;
  }

  async function start(spec: ReplicaSpec, { signal, onLog }: StartOptions): Promise<StartedReplica> {
    const name = nameReplica(spec);
    const url = `http://${name}.${namespace}.svc:${imagePort}`;
    let hasReadyPod = false;
    try {
      for (const each of buildObjects(spec, options)) {
        signal.throwIfAborted();
        const { ServerSideApply } = library.PatchStrategy;
        const applied = objects.patch(each, undefined, undefined, fieldManager, true, ServerSideApply);
        await raceWithAbort(applied, signal);
      }
      await awaitReady(name, { signal, onLog });
      hasReadyPod = true;
      onLog(`The pod is ready. Waiting until ${url} responds to this process.`);
      await waitUntilOk(url, signal, async () => undefined);
      const findPod = async () => findNewest(await listPods(name))?.metadata?.name;
      const endLog = followPodLog({ library, kubeConfig, namespace, findPod }, onLog);
      return {
        url,
        ended: new Promise(() => undefined),
        isHealthy: (checkSignal) => isHealthy(name, url, checkSignal),
        async stop(drainMs) {
          await removeReplica(name, drainMs);
          endLog();
        },
        detach: endLog,
      };
    } catch (error) {
      const isApiError = error instanceof library.ApiException;
      const cause =
        isApiError && isRefused(error.code)
          ? startFailed(`Kubernetes refused (${error.code}): ${explainApiError(error)}`, error)
          : error instanceof library.AbortError
            ? createTimeoutError('Kubernetes', options.engineTimeoutMs, error)
            : error;
      // A pod that only this host cannot reach may be at work, and another host may reach it.
      const isUnreachable = hasReadyPod && isStartTimeout(signal);
      if (!isUnreachable && mustRemove(cause, signal)) await removeReplica(name, 0).catch(() => undefined);
      if (signal.aborted) throw signal.reason;
      if (isApiError && cause === error) onLog(`Kubernetes failed (${error.code}): ${explainApiError(error)}`);
      throw cause;
    }
  }

  return {
    name: 'kubernetes',
    start,
    async removeAbandoned(readNeeded, signal) {
      const labelSelector = `${replicaLabels.installation}=${options.installation}`;
      // The Secret of a replica is its first object that is created, and its last that is deleted.
      const { items } = await core.listNamespacedSecret({ namespace, labelSelector });
      const kept = new Set((await readNeeded()).map(nameReplica));
      const names = items.map(({ metadata }) => metadata?.name ?? '').filter((name) => !kept.has(name));
      await removeEach(names, signal, (name) => removeReplica(name, 0));
    },
  };
}

/** Like `kubeConfig.makeApiClient`, with a timeout of the requests. */
function configureClient(
  library: KubernetesLibrary,
  kubeConfig: KubeConfig,
  { engineTimeoutMs }: KubernetesObjectOptions,
): Configuration {
  const cluster = kubeConfig.getCurrentCluster();
  if (cluster === null)
    throw runlakeError('INTERNAL', {}, { cause: 'the configuration of Kubernetes has no active cluster' });
  return library.createConfiguration({
    baseServer: new library.ServerConfiguration(cluster.server, {}),
    authMethods: { default: kubeConfig },
    promiseMiddleware: [
      {
        pre: async (request) => {
          request.setSignal(AbortSignal.timeout(engineTimeoutMs));
          return request;
        },
        post: async (response) => response,
      },
    ],
  });
}

function findNewest(pods: readonly V1Pod[]): V1Pod | undefined {
  const createdAt = ({ metadata }: V1Pod) => Number(metadata?.creationTimestamp ?? 0);
  return [...pods].sort((one, other) => createdAt(other) - createdAt(one))[0];
}

interface Condition {
  readonly type: string;
  readonly status: string;
  readonly message?: string;
}

function findMessage(conditions: readonly Condition[] | undefined, type: string, status: string): string | undefined {
  return conditions?.find((each) => each.type === type && each.status === status)?.message;
}

function isReady({ status }: V1Pod): boolean {
  return status?.conditions?.some((each) => each.type === 'Ready' && each.status === 'True') === true;
}

interface PodFailure {
  readonly reason: string;
  readonly restartCount: number;
}

function findFailure({ status }: V1Pod): PodFailure | undefined {
  const statuses: readonly V1ContainerStatus[] = [
    ...(status?.initContainerStatuses ?? []),
    ...(status?.containerStatuses ?? []),
  ];
  for (const { name, state, restartCount } of statuses) {
    const { reason = '', message = '' } = state?.waiting ?? {};
    if (failureReasons.has(reason)) return { restartCount, reason: [`${name}: ${reason}`, message].join(' ').trim() };
  }
  return undefined;
}

/** The message of the status that the API returns as a text. */
function explainApiError({ body, message }: { readonly body: unknown; readonly message: string }): string {
  try {
    const status = typeof body === 'string' ? (JSON.parse(body) as unknown) : body;
    return String((status as { readonly message?: string }).message ?? message);
  } catch {
    return message;
  }
}
