import type { Config } from '../../../infra/config/settings.ts';
import type { Database } from '../../../infra/postgres/pool.ts';
import type { Builder } from '../../../pipelines/deployments/build/build-source.ts';
import type { DeploymentDriver } from '../../../pipelines/deployments/driver.ts';
import { type Host, startHost } from '../../../pipelines/deployments/host.ts';
import { until } from '../../infra/until.ts';
import { openDeployments, readStatus } from './add-deployment.ts';
import { createRecordingDriver, type Recording } from './recording-driver.ts';

/** What replaces the parts that record, or do nothing. */
export interface HostParts {
  readonly config?: Partial<Config>;
  readonly database?: Database;
  readonly builder?: Partial<Builder>;
  readonly driver?: Partial<DeploymentDriver>;
  /** Deletes an uploaded source. */
  readonly deleteSource?: (path: string) => Promise<void>;
}

/** Opens hosts that share the work through real rows. They record what they start instead of running it. */
export async function openHosts(overrides: Partial<Config>) {
  const under = await openDeployments({ deploymentsTickMs: 50, deploymentsSwitchMs: 0, ...overrides });
  const { database } = under;
  const recording: Recording = {
    ...{ started: [], needed: [], failing: new Set(), unstoppable: new Set(), outlivesHost: false },
  };
  const awaitStatus = (revisionId: string | null, status: string) =>
    until(`revision ${status}`, async () => (await readStatus(database, revisionId)) === status);
  const hosts: Host[] = [];
  return {
    ...under,
    recording,
    async addHost(name: string, parts: HostParts = {}): Promise<Host> {
      const { config, builder, driver, deleteSource, ...others } = parts;
      const sources = { delete: deleteSource ?? (async () => undefined) };
      const host = await startHost(
        {
          ...under,
          ...others,
          config: { ...under.config, ...config },
          builder: {
            build: async () => ({ agentsFile: '/nowhere' }),
            deleteExcept: async () => undefined,
            close: async () => undefined,
            ...builder,
          },
          driver: { ...createRecordingDriver(recording, name), ...driver },
          sourceStore: { open: async () => sources as never, close: async () => undefined },
          enqueueProjectDeletion: async () => undefined,
        },
        { isOnlyHost: false },
      );
      hosts.push(host);
      return host;
    },
    /** Returns the running replicas of the deployment with this name. */
    running: (name: string) => recording.started.filter(({ spec, isRunning }) => spec.name === name && isRunning),
    awaitStatus,
    /** Waits until a revision has this status, and returns the reason of it. */
    async awaitReason(revisionId: string | null, status: string): Promise<string | undefined> {
      await awaitStatus(revisionId, status);
      const [transition] = await database.query<{ reason: string }>(
        'SELECT reason FROM revision_transitions WHERE revision_id = $1 AND to_status = $2',
        [revisionId, status],
      );
      return transition?.reason;
    },
    /** Stops the hosts, and deletes the deployments and what is recorded. */
    async clear(): Promise<void> {
      await Promise.all(hosts.splice(0).map((host) => host.stop()));
      await database.execute('DELETE FROM deployments');
      recording.started.length = 0;
      recording.needed.length = 0;
      recording.failing.clear();
      recording.unstoppable.clear();
      Object.assign(recording, { outlivesHost: false, failure: undefined, startable: undefined, drained: undefined });
    },
  };
}
