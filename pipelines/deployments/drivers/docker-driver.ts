/**
 * Runs images as containers of a Docker engine, one for each replica.
 *
 * Invariant: a container is identified by its name, which contains the revision and the number of the replica. A
 * container that runs with the same settings is taken over, so that the crash of a host does not interrupt it; any other
 * container of that name is removed first. The engine does not restart containers, the host does.
 *
 *   1. The image is pulled. Without access to its registry, an image that the engine has is used.
 *   2. The container is created and started. It listens on a loopback port of this machine, or in `network`.
 *   3. The replica has started when `/ok` responds. If the container ends before that, its last lines are the reason.
 *   4. To stop it, the engine sends SIGTERM, and SIGKILL after the drain time. Then the container is removed.
 */
import { createHash } from 'node:crypto';
import { hostname } from 'node:os';
import { pipeline, type Readable, Transform } from 'node:stream';
import { json } from 'node:stream/consumers';
import type Docker from 'dockerode';
import { readLines } from '../../../infra/isolation/read-lines.ts';
import { pause } from '../../../infra/timeouts/backoff.ts';
import { raceWithAbort } from '../../../infra/timeouts/with-timeout.ts';
import type { DeploymentDriver, ReplicaSpec, StartedReplica, StartOptions } from '../driver.ts';
import { respondsOk } from '../responds-ok.ts';
import {
  buildImageEnvironment,
  createTimeoutError,
  type ImageDriverOptions,
  imagePort,
  isRefused,
  mustRemove,
  nameReplica,
  removeEach,
  requireImage,
  startFailed,
  waitUntilOk,
} from './image-replica.ts';

export interface DockerDriverOptions extends ImageDriverOptions {
  readonly docker: Docker;
  /** Network in which replicas are reached by their names. Unset: each gets a loopback port of this machine. */
  readonly network: string | undefined;
}

const labels = { installation: 'runlake.installation', settings: 'runlake.settings' } as const;
const maxProcesses = 4_096;
/** Pause before the end of a container is waited for again. */
const waitPauseMs = 1_000;
const portName = `${imagePort}/tcp`;

export function createDockerDriver(options: DockerDriverOptions): DeploymentDriver {
  const { installation, engineTimeoutMs } = options;
  const docker = limitRequests(options.docker, engineTimeoutMs);
  return {
    name: 'docker',
    start: (spec, startOptions) => startContainer({ ...options, docker }, spec, startOptions),
    async removeAbandoned(readNeeded, signal) {
      const filters = { label: [`${labels.installation}=${installation}`] };
      const containers = await docker.listContainers({ all: true, filters });
      const kept = new Set((await readNeeded()).map(nameReplica));
      const abandoned = containers.filter(({ Names }) => !Names.some((name) => kept.has(name.replace(/^\//, ''))));
      await removeEach(abandoned, signal, ({ Id }) => remove(docker.getContainer(Id)));
    },
  };
}

/**
 * Returns the network of the container that this process runs in, whose name is then its host name. Returns undefined
 * outside of a container, and in a network in which names are not resolved.
 *
 * @throws the error of an engine that does not respond
 */
export async function findOwnNetwork(docker: Docker, engineTimeoutMs: number): Promise<string | undefined> {
  const own = await limitRequests(docker, engineTimeoutMs)
    .getContainer(hostname())
    .inspect()
    .catch((error: unknown) => ignoreStatus(error, 404));
  return Object.keys(own?.NetworkSettings.Networks ?? {}).find((name) => !['bridge', 'host', 'none'].includes(name));
}

/** Returns a client whose requests end after a timeout and with `signal`, unless they have a signal of their own. */
function limitRequests(docker: Docker, timeoutMs: number, signal?: AbortSignal): Docker {
  const modem: Docker['modem'] = Object.create(docker.modem);
  modem.dial = (request, callback) => {
    const timeout = AbortSignal.timeout(timeoutMs);
    const limit = signal ? AbortSignal.any([signal, timeout]) : timeout;
    docker.modem.dial({ ...request, abortSignal: request.abortSignal ?? limit }, (error, result) => {
      const isLate = error !== null && request.abortSignal === undefined && timeout.aborted;
      callback?.(isLate ? createTimeoutError('Docker', timeoutMs, error) : error, result);
    });
  };
  return Object.assign(Object.create(docker) as Docker, { modem });
}

async function startContainer(
  options: DockerDriverOptions,
  spec: ReplicaSpec,
  { signal, onLog }: StartOptions,
): Promise<StartedReplica> {
  const { docker, engineTimeoutMs } = options;
  const starting = limitRequests(docker, engineTimeoutMs, signal);
  const attached = new AbortController();
  const created = describeContainer(options, spec);
  const { name } = created;
  let id = name;
  try {
    const present = await inspect(starting.getContainer(name));
    const isSame = present?.State.Running && present.Config.Labels[labels.settings] === created.Labels[labels.settings];
    if (!isSame) {
      if (present) await remove(starting.getContainer(name));
      await pullImage(starting, created.Image, { signal, onLog });
      signal.throwIfAborted();
      const { name: _, ...body } = created;
      // Without these names, the library would put all values into the URL, including secrets.
      const container = await starting.createContainer({
        ...{ _query: { name }, _body: body },
      } as Docker.ContainerCreateOptions);
      await container.start();
      id = container.id;
    }
    const container = docker.getContainer(id);
    const output = { tail: isSame ? 0 : maxKeptLines, onLog, attached: attached.signal };
    const lines = await raceWithAbort(followOutput(container, output), signal);
    const ended = awaitEnd(container, attached.signal);
    let reason: string | undefined;
    void ended.then((text) => {
      reason = text;
    });
    const url = await findUrl(starting.getContainer(id), options.network);
    await waitUntilOk(url, signal, async () => {
      if (reason !== undefined) throw startFailed([reason.replace(/\.$/, ''), ...lines()].join('\n'));
    });
    return {
      url,
      ended,
      isHealthy: (checkSignal) => respondsOk(url, checkSignal),
      stop: async (drainMs) => {
        // 304: it has ended already.
        await container
          .stop({ t: Math.ceil(drainMs / 1_000), abortSignal: AbortSignal.timeout(drainMs + engineTimeoutMs) })
          .catch((error: unknown) => ignoreStatus(error, 304, 404));
        await remove(container);
      },
      detach: () => attached.abort(),
    };
  } catch (error) {
    attached.abort();
    const cause =
      isDockerError(error) && isRefused(error.statusCode)
        ? startFailed(`Docker refused: ${explainDockerError(error)}`, error)
        : error;
    if (mustRemove(cause, signal)) await remove(docker.getContainer(name)).catch(() => undefined);
    if (signal.aborted) throw signal.reason;
    if (isDockerError(cause)) onLog(`Docker failed: ${explainDockerError(cause)}`);
    throw cause;
  }
}

type ContainerSettings = Docker.ContainerCreateOptions & {
  readonly name: string;
  readonly Image: string;
  readonly Labels: Record<string, string>;
};

/** @throws DEPLOYMENT_START_FAILED if the specification requests a resource that Docker does not have. */
function describeContainer(options: DockerDriverOptions, spec: ReplicaSpec): ContainerSettings {
  const { resources, secretReferences, deploymentId, revisionId, slug } = spec;
  const [reference] = secretReferences;
  if (reference !== undefined)
    throw startFailed(
      `secret_references need the driver kubernetes; set ${reference.name} as a secret of the deployment`,
    );
  const cpu = resources.cpu_limit ?? (resources.cpu ? 2 * resources.cpu : undefined);
  const memory = resources.memory_limit_mb ?? (resources.memory_mb ? 2 * resources.memory_mb : undefined);
  const { network } = options;
  const settings = {
    name: nameReplica(spec),
    Image: requireImage(spec, 'docker'),
    Env: Object.entries(buildImageEnvironment(spec, options)).map(([name, value]) => `${name}=${value}`),
    ExposedPorts: { [portName]: {} },
    HostConfig: {
      ...(cpu && { NanoCpus: Math.round(cpu * 1e9) }),
      ...(memory && { Memory: memory * 1024 * 1024, MemorySwap: memory * 1024 * 1024 }),
      PidsLimit: maxProcesses,
      SecurityOpt: ['no-new-privileges'],
      Init: true,
      ...(network === undefined
        ? { PortBindings: { [portName]: [{ HostIp: '127.0.0.1', HostPort: '' }] } }
        : { NetworkMode: network }),
    },
  };
  const digest = createHash('sha256').update(JSON.stringify(settings)).digest('hex');
  return {
    ...settings,
    Labels: {
      ...resources.labels,
      [labels.installation]: options.installation,
      [labels.settings]: digest,
      'runlake.deployment': deploymentId,
      'runlake.revision': revisionId,
      'runlake.slug': slug,
    },
  };
}

interface PullProgress {
  readonly status?: string;
  readonly id?: string;
  readonly progress?: string;
  readonly error?: string;
}

async function pullImage(docker: Docker, image: string, { signal, onLog }: StartOptions): Promise<void> {
  let failure: string | undefined;
  let cause: unknown;
  try {
    const progress = await docker.pull(image, { abortSignal: signal });
    await new Promise<void>((resolve, reject) => {
      docker.modem.followProgress(
        progress,
        (error) => (error ? reject(error) : resolve()),
        ({ status, id, progress: bar, error }: PullProgress) => {
          // The response has the status 200 already, and ends as after a success.
          if (error !== undefined) failure = error;
          // Lines with a progress bar are repeated for each of its steps.
          else if (status !== undefined && !bar) onLog(id ? `${id}: ${status}` : status);
        },
      );
    });
  } catch (error) {
    signal.throwIfAborted();
    failure = explainDockerError(error);
    cause = error;
  }
  if (failure === undefined) return;
  const isPresent = await docker
    .getImage(image)
    .inspect()
    .then(
      () => true,
      () => false,
    );
  if (!isPresent) throw startFailed(`The image ${image} cannot be pulled: ${failure}`, cause);
  onLog(`The image cannot be pulled; the one on this machine is used: ${failure}`);
}

const maxKeptLines = 20;

/**
 * Passes the output on while `attached`, after the last `tail` lines. If the engine cuts the connection, for example because
 * it is restarted, the output since the last line follows.
 *
 * @returns a function that returns the last lines.
 */
async function followOutput(
  container: Docker.Container,
  { tail, onLog, attached }: Pick<StartOptions, 'onLog'> & { readonly tail: number; readonly attached: AbortSignal },
): Promise<() => readonly string[]> {
  const kept: string[] = [];
  let lastLineAtMs = Date.now();
  /** Resolves with a promise that resolves at the end of the connection. */
  const open = async (from: { readonly tail: number } | { readonly since: number }) => {
    const options = { follow: true, stdout: true, stderr: true, ...from, abortSignal: attached } as const;
    const stream = (await container.logs(options)) as unknown as Readable;
    const output = createDemultiplexer();
    readLines([output], (line) => {
      lastLineAtMs = Date.now();
      kept.push(line);
      if (kept.length > maxKeptLines) kept.shift();
      onLog(line);
    });
    return { closed: new Promise<void>((resolve) => pipeline(stream, output, () => resolve())) };
  };
  let connection = await open({ tail });
  void (async () => {
    for (;;) {
      await connection.closed;
      await pause(waitPauseMs, attached);
      if (attached.aborted) return;
      try {
        connection = await open({ since: lastLineAtMs / 1_000 });
      } catch (error) {
        if (isDockerError(error) && isRefused(error.statusCode)) return;
      }
    }
  })();
  return () => kept;
}

const frameHeaderBytes = 8;

/**
 * Removes the headers of the frames of a multiplexed stream. The library does that too, by recursion, which exceeds the
 * stack if a container writes thousands of blank lines. Source: Docker Engine API, "Attach to a container".
 */
function createDemultiplexer(): Transform {
  let header = Buffer.alloc(0);
  let payloadBytes = 0;
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      const payloads: Buffer[] = [];
      for (let at = 0; at < chunk.length; ) {
        const part = chunk.subarray(at, at + (payloadBytes || frameHeaderBytes - header.length));
        at += part.length;
        if (payloadBytes > 0) {
          payloads.push(part);
          payloadBytes -= part.length;
          continue;
        }
        header = Buffer.concat([header, part]);
        if (header.length < frameHeaderBytes) continue;
        payloadBytes = header.readUInt32BE(4);
        header = Buffer.alloc(0);
      }
      done(null, Buffer.concat(payloads));
    },
  });
}

/** Resolves with the reason when the container has ended, or is followed no longer. Never rejects. */
async function awaitEnd(container: Docker.Container, attached: AbortSignal): Promise<string> {
  for (;;) {
    try {
      const code = await awaitExitCode(container, attached);
      const state = (await inspect(container).catch(() => undefined))?.State;
      return state?.OOMKilled ? 'The container ran out of memory.' : `The container ended with exit code ${code}.`;
    } catch (error) {
      // The connection was cut, for example by a restart of the engine. The container may still run.
      if (attached.aborted || (isDockerError(error) && isRefused(error.statusCode)))
        return `The container is gone: ${(error as Error).message}`;
    }
    await pause(waitPauseMs, attached);
  }
}

/** The library's own function never settles if the connection is cut before the end of the response. */
async function awaitExitCode({ modem, id }: Docker.Container, signal: AbortSignal): Promise<number> {
  const response = await new Promise<Readable>((resolve, reject) => {
    const statusCodes = { 200: true, 400: 'bad parameter', 404: 'no such container', 500: 'server error' };
    const request = {
      path: `/containers/${id}/wait`,
      method: 'POST',
      isStream: true,
      abortSignal: signal,
      statusCodes,
    };
    const dial = (modem as Docker['modem']).dial.bind(modem);
    dial(request, (error, result) => (error ? reject(error) : resolve(result as Readable)));
  });
  return ((await json(response)) as { readonly StatusCode: number }).StatusCode;
}

async function findUrl(container: Docker.Container, network: string | undefined): Promise<string> {
  const { Name, NetworkSettings } = await container.inspect();
  if (network !== undefined) return `http://${Name.replace(/^\//, '')}:${imagePort}`;
  const port = NetworkSettings.Ports[portName]?.[0]?.HostPort;
  if (port === undefined) throw startFailed('The container has ended before its port was opened');
  return `http://127.0.0.1:${port}`;
}

async function inspect(container: Docker.Container): Promise<Docker.ContainerInspectInfo | undefined> {
  return container.inspect().catch((error: unknown) => ignoreStatus(error, 404));
}

async function remove(container: Docker.Container): Promise<void> {
  // 409: another request is removing it.
  await container.remove({ force: true, v: true }).catch((error: unknown) => ignoreStatus(error, 404, 409));
}

interface DockerError extends Error {
  readonly statusCode: number;
  readonly json?: { readonly message?: string } | null;
}

function isDockerError(error: unknown): error is DockerError {
  return error instanceof Error && typeof (error as Partial<DockerError>).statusCode === 'number';
}

function explainDockerError(error: unknown): string {
  return (isDockerError(error) ? error.json?.message : undefined) ?? (error as Error).message;
}

function ignoreStatus(error: unknown, ...statuses: readonly number[]): undefined {
  if (isDockerError(error) && statuses.includes(error.statusCode)) return undefined;
  throw error;
}
