import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { DeploymentDriver, ReplicaName, ReplicaSpec } from '../../../pipelines/deployments/driver.ts';

interface RecordedReplica {
  readonly spec: ReplicaSpec;
  readonly host: string;
  isRunning: boolean;
  end(reason: string): void;
  drainedMs: number | undefined;
  isDetached: boolean;
}

/** What hosts have started, and how the replicas behave. */
export interface Recording {
  readonly started: RecordedReplica[];
  /** What was needed each time that a driver was asked to remove other replicas. */
  readonly needed: (readonly ReplicaName[])[];
  /** Names of deployments whose replicas fail to start. */
  readonly failing: Set<string>;
  /** The reason of their failure. */
  failure?: string;
  /** Names of deployments whose replicas cannot be stopped. */
  readonly unstoppable: Set<string>;
  /** Resolves when replicas can start. Default: at once. */
  startable?: Promise<void>;
  /** Resolves when replicas that stop have drained. Default: at once. */
  drained?: Promise<void>;
  /** Whether replicas outlive their host, as containers do. */
  outlivesHost: boolean;
}

/** Creates the driver of a host. It records what it starts instead of running it. */
export function createRecordingDriver(recording: Recording, host: string): DeploymentDriver {
  const { started } = recording;
  return {
    name: 'docker',
    removeAbandoned: async (readNeeded) => void recording.needed.push(await readNeeded()),
    async start(spec, { signal, onLog }) {
      await recording.startable;
      signal.throwIfAborted();
      onLog(`starting ${spec.name}`);
      if (recording.failing.has(spec.name))
        throw runlakeError('DEPLOYMENT_START_FAILED', { reason: recording.failure ?? 'The graph is broken' });
      let end = (_reason: string): void => undefined;
      const ended = new Promise<string>((resolve) => {
        end = resolve;
      });
      const replica: RecordedReplica = {
        ...{ spec, host, isRunning: true, drainedMs: undefined, isDetached: false },
        end(reason) {
          replica.isRunning = false;
          end(reason);
        },
      };
      started.push(replica);
      return {
        url: `http://${host}.example/${spec.revisionId}/${spec.number}/${started.length}`,
        isHealthy: async () => replica.isRunning,
        ended,
        async stop(drainMs) {
          replica.drainedMs ??= drainMs;
          await recording.drained;
          if (recording.unstoppable.has(spec.name)) throw new Error('The engine does not respond');
          replica.isRunning = false;
        },
        ...(recording.outlivesHost && {
          detach() {
            replica.isDetached = true;
          },
        }),
      };
    },
  };
}
