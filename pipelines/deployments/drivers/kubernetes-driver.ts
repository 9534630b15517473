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
import type {
  AppsV1Api,
  Configuration,
  CoreV1Api,
  KubeConfig,
  KubernetesObjectApi,
  V1ContainerStatus,
  V1Pod,
} from '@kubernetes/client-node';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { poll } from '../../../infra/timeouts/poll.ts';
import { raceWithAbort } from '../../../infra/timeouts/with-timeout.ts';
import { containerName } from '../check-pod.ts';
import type { DeploymentDriver, ReplicaName, ReplicaSpec, StartedReplica, StartOptions } from '../driver.ts';
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
import { followPodLog, type KubernetesLibrary, maxLogLines } from './kubernetes-log.ts';
import { buildObjects, type KubernetesObjectOptions, listObjectHeaders, replicaLabels } from './kubernetes-objects.ts';

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

export class KubernetesDriver implements DeploymentDriver {
  readonly name = 'kubernetes';
  readonly #library: KubernetesLibrary;
  readonly #kubeConfig: KubeConfig;
  readonly #options: KubernetesObjectOptions;
  readonly #objects: KubernetesObjectApi;
  readonly #core: CoreV1Api;
  readonly #apps: AppsV1Api;

  /** @param library The module. It is passed, because it is loaded only if this driver is configured. */
  constructor(library: KubernetesLibrary, kubeConfig: KubeConfig, options: KubernetesObjectOptions) {
    const configuration = configureClient(library, kubeConfig, options);
    this.#library = library;
    this.#kubeConfig = kubeConfig;
    this.#options = options;
    this.#objects = new library.KubernetesObjectApi(configuration);
    this.#core = new library.CoreV1Api(configuration);
    this.#apps = new library.AppsV1Api(configuration);
  }

  async start(spec: ReplicaSpec, startOptions: StartOptions): Promise<StartedReplica> {
    const { signal, onLog } = startOptions;
    const { namespace } = this.#options;
    const name = nameReplica(spec);
    const url = `http://${name}.${namespace}.svc:${imagePort}`;
    let hasReadyPod = false;
    try {
      await this.#apply(spec, signal);
      await this.#awaitReady(name, startOptions);
      hasReadyPod = true;
      onLog(`The pod is ready. Waiting until ${url} responds to this process.`);
      await waitUntilOk(url, signal, async () => undefined);
    } catch (error) {
      const cause = this.#explain(error);
      // A pod that only this host cannot reach may be at work, and another host may reach it.
      const isUnreachable = hasReadyPod && isStartTimeout(signal);
      if (!isUnreachable && mustRemove(cause, signal)) await this.#remove(name, 0).catch(() => undefined);
      if (signal.aborted) throw signal.reason;
      if (error instanceof this.#library.ApiException && cause === error)
        onLog(`Kubernetes failed (${error.code}): ${explainApiError(error)}`);
      throw cause;
    }
    const findPod = async () => findNewest(await this.#listPods(name))?.metadata?.name;
    const endLog = followPodLog({ library: this.#library, kubeConfig: this.#kubeConfig, namespace, findPod }, onLog);
    return {
      url,
      ended: new Promise(() => undefined),
      isHealthy: (checkSignal) => this.#isHealthy(name, url, checkSignal),
      stop: async (drainMs) => {
        await this.#remove(name, drainMs);
        endLog();
      },
      detach: endLog,
    };
  }

  async removeAbandoned(readNeeded: () => Promise<readonly ReplicaName[]>, signal: AbortSignal): Promise<void> {
    const { namespace, installation } = this.#options;
    const labelSelector = `${replicaLabels.installation}=${installation}`;
    // The Secret of a replica is its first object that is created, and its last that is deleted.
    const { items } = await this.#core.listNamespacedSecret({ namespace, labelSelector });
    const kept = new Set((await readNeeded()).map(nameReplica));
    const names = items.map(({ metadata }) => metadata?.name ?? '').filter((name) => !kept.has(name));
    await removeEach(names, signal, (name) => this.#remove(name, 0));
  }

  async #apply(spec: ReplicaSpec, signal: AbortSignal): Promise<void> {
    const { ServerSideApply } = this.#library.PatchStrategy;
    for (const each of buildObjects(spec, this.#options)) {
      signal.throwIfAborted();
      const applied = this.#objects.patch(each, undefined, undefined, fieldManager, true, ServerSideApply);
      await raceWithAbort(applied, signal);
    }
  }

  async #remove(name: string, drainMs: number): Promise<void> {
    for (const header of listObjectHeaders(name, this.#options.namespace))
      await this.#objects.delete(header, undefined, undefined, undefined, undefined, 'Background').catch((error) => {
        if (!(error instanceof this.#library.ApiException) || error.code !== 404) throw error;
      });
    const deletePods = () => this.#core.deleteCollectionNamespacedPod({ ...this.#select(name), gracePeriodSeconds: 0 });
    if (drainMs === 0) await deletePods();
    const isGone = async () => (await this.#listPods(name)).length === 0;
    const timing = { intervalMs: stopPollMs, timeoutMs: drainMs + removalTimeoutMs };
    if (!(await poll(isGone, timing))) await deletePods();
  }

  /** Resolves when a pod of the replica is ready. @throws DEPLOYMENT_START_FAILED; the reason of the signal */
  async #awaitReady(name: string, { signal, onLog }: StartOptions): Promise<void> {
    let shown: string | undefined;
    const attempt = async () => {
      const pods = await raceWithAbort(this.#listPods(name), signal);
      for (const pod of pods) {
        const failed = findFailure(pod);
        if (failed) {
          const reading = this.#readLastLines(pod.metadata?.name ?? '', failed.restartCount > 0);
          const lines = await raceWithAbort(reading, signal);
          throw startFailed([`The pod cannot start: ${failed.reason}`, lines.trimEnd()].join('\n').trimEnd());
        }
        if (isReady(pod)) return true;
      }
      const obstacle = await raceWithAbort(this.#findObstacle(name, pods), signal);
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
  async #isHealthy(name: string, url: string, signal: AbortSignal): Promise<boolean> {
    if (await respondsOk(url, AbortSignal.any([signal, AbortSignal.timeout(okTimeoutMs)]))) return true;
    const pods = await raceWithAbort(this.#listPods(name), signal).catch(() => undefined);
    return pods?.some(isReady) ?? true;
  }

  /** Why the cluster does not run the pod of a replica, for example for lack of a node or because of a quota. */
  async #findObstacle(name: string, pods: readonly V1Pod[]): Promise<string | undefined> {
    if (pods.length > 0) return findMessage(findNewest(pods)?.status?.conditions, 'PodScheduled', 'False');
    const { items } = await this.#apps.listNamespacedDeployment(this.#select(name));
    return findMessage(items[0]?.status?.conditions, 'ReplicaFailure', 'True');
  }

  async #readLastLines(pod: string, previous: boolean): Promise<string> {
    const { namespace } = this.#options;
    const request = { name: pod, namespace, container: containerName, tailLines: maxLogLines, previous };
    return this.#core.readNamespacedPodLog(request).catch(() => '');
  }

  async #listPods(name: string): Promise<readonly V1Pod[]> {
    return (await this.#core.listNamespacedPod(this.#select(name))).items;
  }

  #select(name: string) {
    return { namespace: this.#options.namespace, labelSelector: `${replicaLabels.replica}=${name}` };
  }

  /** Returns the cause of a failed start, in terms of the deployment. */
  #explain(error: unknown): unknown {
    const { ApiException, AbortError } = this.#library;
    if (error instanceof ApiException && isRefused(error.code))
      return startFailed(`Kubernetes refused (${error.code}): ${explainApiError(error)}`, error);
    if (error instanceof AbortError) return createTimeoutError('Kubernetes', this.#options.engineTimeoutMs, error);
    return error;
  }
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
