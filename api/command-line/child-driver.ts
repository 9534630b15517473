/**
 * The driver `process` with Kafka: a replica is a child process `runlake agents`.
 *
 * Invariant: no child outlives this process: it stops when the channel to this process closes (`follow-host.ts`).
 *
 *   1. The child gets the settings of this process, with those of the replica (`configureReplica`) in their place.
 *   2. It reports that it listens when all graphs are loaded, and then responds to `/ok`. If it ends before, its error
 *      explains why.
 *   3. To stop, it retires, drains and exits; it is killed if that takes too long.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { revisionVariable } from '../../infra/config/graph-environment.ts';
import { buildChildEnvironment } from '../../infra/config/load.ts';
import type { Config } from '../../infra/config/settings.ts';
import { LastLines } from '../../infra/embedded/child-program.ts';
import { poll } from '../../infra/timeouts/poll.ts';
import { settlesBeforeTimeout } from '../../infra/timeouts/with-timeout.ts';
import type { DeploymentDriver, ReplicaSpec, StartedReplica } from '../../pipelines/deployments/driver.ts';
import { respondsOk } from '../../pipelines/deployments/responds-ok.ts';
import { configureReplica, PortRange, toRevisionLogLine, toStartError } from './configure-replica.ts';
import { type ReportedError, retireMessage, startedMessage } from './follow-host.ts';
import type { StoreAddresses } from './open-stores.ts';

export interface ChildDeps {
  readonly config: Config;
  readonly addresses: StoreAddresses;
  readonly secretKey: string;
}

const pollIntervalMs = 100;
/** Number of the level in log lines. Source: pino. */
const warningLevel = 40;
/** In JSON, a character of a line of graph code (`read-lines.ts`) can become six. */
const maxLogLineCharacters = 32_000;
/** Time for the parts of a child to stop after it has drained. */
const shutdownTimeoutMs = 15_000;

export function createChildDriver(deps: ChildDeps): DeploymentDriver {
  const ports = new PortRange(deps.config.deploymentsPortRange);
  return {
    name: 'process',
    async start(spec, { signal, onLog }) {
      const port = await ports.take();
      let child: ChildProcess;
      let url: string;
      try {
        ({ child, url } = forkReplica(deps, spec, port));
      } catch (error) {
        ports.release(port);
        throw error;
      }
      const exited = awaitExit(child).finally(() => ports.release(port));
      new LastLines(child.stderr, (line) => passLine(line, onLog), maxLogLineCharacters);
      try {
        // Rejects with the error of the system if there is no process, for example for lack of memory.
        await once(child, 'spawn');
        await awaitStart(child, exited, url, signal);
      } catch (error) {
        child.kill('SIGKILL');
        await exited;
        throw error;
      }
      return createReplica(child, exited, url);
    },
  };
}

/** @throws DEPLOYMENT_START_FAILED if the revision is an image; errors of the system. */
function forkReplica(
  { config, addresses, secretKey }: ChildDeps,
  spec: ReplicaSpec,
  port: number,
): { readonly child: ChildProcess; readonly url: string } {
  const replica = configureReplica(config, spec, port);
  const environment = buildChildEnvironment({
    ...addresses,
    secretKey,
    metricsPort: 0,
    agentsFile: replica.agentsFile,
    agentsDeployment: replica.agentsDeployment,
    agentsHost: replica.agentsHost,
    agentsPort: port,
    agentsPublicUrl: replica.agentsPublicUrl,
    agentsDatabaseUrl: replica.agentsDatabaseUrl,
    agentsWorkers: replica.agentsWorkers,
    agentsWorkerHeapMegabytes: replica.agentsWorkerHeapMegabytes,
  });
  const child = fork(process.argv[1] as string, ['agents'], {
    env: { ...environment, [revisionVariable]: JSON.stringify(replica.agentsRevision) },
    // A signal to the process group of this process, such as Ctrl+C, must not reach the child: the host drains it.
    detached: true,
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
  });
  return { child, url: `http://${replica.agentsHost}:${port}` };
}

/** Resolves with the reason when the child has ended or cannot be started. Never rejects. */
function awaitExit(child: ChildProcess): Promise<string> {
  return new Promise((resolve) => {
    child.once('exit', (code, killedBy) =>
      resolve(`The agent server ${killedBy ? `was killed by ${killedBy}` : `ended with code ${code}`}`),
    );
    // A running child emits errors too, for example when it cannot be killed. Without a process, no exit follows.
    child.on('error', () => {
      if (child.pid === undefined) resolve('The agent server cannot be started');
    });
  });
}

/** Waits until the child answers, without a limit: `run-replica.ts` aborts `signal`. */
async function awaitStart(
  child: ChildProcess,
  exited: Promise<string>,
  url: string,
  signal: AbortSignal,
): Promise<void> {
  let reported: ReportedError | undefined;
  let endReason: string | undefined;
  let isListening = false;
  child.on('message', (message) => {
    if (message === startedMessage) isListening = true;
    else reported = message as ReportedError;
  });
  void exited.then((reason) => {
    endReason = reason;
  });
  const isUp = async () =>
    endReason !== undefined ||
    reported !== undefined ||
    (isListening && (await respondsOk(url, AbortSignal.any([signal, AbortSignal.timeout(2_000)]))));
  await poll(isUp, { intervalMs: pollIntervalMs, timeoutMs: Number.MAX_SAFE_INTEGER, signal });
  signal.throwIfAborted();
  // A child that cannot start may take long to stop its parts; the caller kills it.
  if (endReason !== undefined || reported !== undefined) throw toStartError(reported, endReason);
}

function createReplica(child: ChildProcess, exited: Promise<string>, url: string): StartedReplica {
  let stopping: Promise<void> | undefined;
  const stop = async (drainMs: number) => {
    // If the message cannot be sent, the child has ended or ends, because it follows the channel.
    if (drainMs > 0 && child.connected) child.send(retireMessage, () => undefined);
    else child.kill('SIGTERM');
    if (!(await settlesBeforeTimeout(exited, drainMs + shutdownTimeoutMs))) child.kill('SIGKILL');
    await exited;
  };
  return {
    url,
    isHealthy: (signal) => respondsOk(url, signal),
    stop: (drainMs) => {
      stopping ??= stop(drainMs);
      return stopping;
    },
    ended: exited,
  };
}

/** Passes a line of the log of a child to the log of the revision; see {@link toRevisionLogLine}. */
function passLine(text: string, onLog: (line: string) => void): void {
  if (!text.startsWith('{')) return;
  try {
    const { msg, level, ...fields } = JSON.parse(text) as Record<string, unknown>;
    const line = toRevisionLogLine(fields, String(msg), Number(level) >= warningLevel);
    if (line !== undefined) onLog(line);
  } catch {
    // A line that was cut.
  }
}
