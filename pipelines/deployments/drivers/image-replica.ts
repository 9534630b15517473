/** What the drivers that run images have in common. */
import { isRunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import { pause } from '../../../infra/timeouts/backoff.ts';
import type { ReplicaSpec } from '../driver.ts';
import { respondsOk } from '../responds-ok.ts';

/** Port on which an image must serve its agent server. Also the default of the images that `langgraph build` makes. */
export const imagePort = 8000;
const pollMs = 500;
const requestTimeoutMs = 5_000;

export interface ImageDriverOptions {
  /** Identifies the replicas of this installation among others. */
  readonly installation: string;
  /** Address of the main API for the traces of the replicas. */
  readonly publicUrl: string | undefined;
  /** Timeout of a request to the engine. Those that follow a log, wait for an end, or pull an image have none. */
  readonly engineTimeoutMs: number;
}

/** Returns the name of a replica outside of Runlake: a DNS label. */
export function nameReplica({ revisionId, number }: Pick<ReplicaSpec, 'revisionId' | 'number'>): string {
  return `runlake-${revisionId}-${number}`;
}

/**
 * Returns the environment variables of a replica. An image contains code of the owner of the deployment, so it gets no
 * address or password of the stores of this installation, only what the owner has set.
 */
export function buildImageEnvironment(
  { deploymentId, name, environment }: ReplicaSpec,
  { publicUrl }: ImageDriverOptions,
): Readonly<Record<string, string>> {
  return {
    LANGSMITH_PROJECT: name,
    ...(publicUrl !== undefined && { LANGSMITH_ENDPOINT: publicUrl }),
    ...environment,
    PORT: String(imagePort),
    RUNLAKE_AGENTS_HOST: '0.0.0.0',
    RUNLAKE_AGENTS_PORT: String(imagePort),
    RUNLAKE_AGENTS_DEPLOYMENT: deploymentId,
  };
}

/** @throws DEPLOYMENT_START_FAILED if the revision was built from source. */
export function requireImage({ imageUri }: ReplicaSpec, driver: string): string {
  if (imageUri !== undefined) return imageUri;
  throw startFailed(`The driver ${driver} runs images; the source of the deployment must be external_docker`);
}

/** @param reason a sentence without a period, for the owner of the deployment. */
export function startFailed(reason: string, cause?: unknown): Error {
  return runlakeError('DEPLOYMENT_START_FAILED', { reason: reason.slice(0, 1_000) }, { cause });
}

export function createTimeoutError(engine: 'Docker' | 'Kubernetes', limitMs: number, cause: unknown): Error {
  return runlakeError('PART_SILENT', { part: engine, limitMs }, { cause });
}

/** Whether a request that got this status cannot succeed without a change. Otherwise it may if it is sent again. */
export function isRefused(status: number): boolean {
  return status >= 400 && status < 500 && ![408, 409, 429].includes(status);
}

/**
 * Whether what a failed start has left must be removed. Otherwise it stays for the next start: because another host has
 * taken it over, or because of an error that is not in the deployment, such as an engine that does not respond.
 */
export function mustRemove(error: unknown, signal: AbortSignal): boolean {
  if (signal.aborted) return !isTakenOver(signal);
  return isRunlakeError(error) && error.class === 'caller';
}

/**
 * Calls `remove` for each replica, also after one that fails, until `signal` is aborted.
 *
 * @throws the first error, at the end
 */
export async function removeEach<Replica>(
  replicas: readonly Replica[],
  signal: AbortSignal,
  remove: (replica: Replica) => Promise<void>,
): Promise<void> {
  const errors: unknown[] = [];
  for (const replica of replicas) {
    if (signal.aborted) break;
    await remove(replica).catch((error: unknown) => errors.push(error));
  }
  if (errors.length > 0) throw errors[0];
}

/** Whether a start is aborted because the replica did not answer in time. */
export function isStartTimeout({ reason }: AbortSignal): boolean {
  return isRunlakeError(reason) && reason.code === 'DEPLOYMENT_START_FAILED';
}

/** Whether another host takes over the replica that this signal belongs to, so that it must not be removed. */
function isTakenOver({ reason }: AbortSignal): boolean {
  return isRunlakeError(reason) && reason.code === 'REVISION_TAKEN_OVER';
}

/**
 * Resolves when the agent server at `url` responds. `checkAlive` is called before each attempt, and throws if the replica
 * can no longer start.
 *
 * @throws the reason of `signal`.
 */
export async function waitUntilOk(url: string, signal: AbortSignal, checkAlive: () => Promise<void>): Promise<void> {
  for (;;) {
    signal.throwIfAborted();
    await checkAlive();
    if (await respondsOk(url, AbortSignal.any([signal, AbortSignal.timeout(requestTimeoutMs)]))) return;
    await pause(pollMs, signal);
  }
}
