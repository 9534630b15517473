import type { EventLog } from '../../infra/event-log/event-log.ts';
import type { Database } from '../../infra/postgres/database.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { isLiveWorkspace } from '../tenants/read-workspace.ts';
import type { ServedDeployment } from './open-deployment.ts';

const lookEveryMs = 2_000;

type Publishing = Pick<EventLog, 'publish' | 'schemaId'>;

/** Whether the workspace of the deployment that this process serves was deleted. */
export interface DeploymentWatch {
  readonly isDeleted: boolean;
  /** The log for what runs publish: once the workspace is deleted, it drops everything. */
  dropWhenDeleted(log: Publishing): Publishing;
  /** Calls `end` once, when the workspace is deleted. What it throws is logged. */
  onDeleted(end: () => Promise<void>): void;
  stop(): Promise<void>;
}

/**
 * Looks every two seconds whether the workspace of a deployment is deleted; that is never taken back. While Postgres is away nothing ends.
 *
 * The deletion of the data (`delete-workspace-data.ts`) waits until no process of the deployment has a heartbeat. Events that are being
 * published are in the log before this process ends its runs, and with them its heartbeat; later ones are dropped.
 */
export function watchDeployment(
  database: Database,
  { deploymentId, operator: { workspaceId } }: ServedDeployment,
  logger: Logger,
): DeploymentWatch {
  const ends: (() => Promise<void>)[] = [];
  const publishing = new Set<Promise<void>>();
  let isDeleted = false;
  let looking: Promise<void> | undefined;

  async function look(): Promise<void> {
    try {
      isDeleted = !(await isLiveWorkspace(database, workspaceId));
    } catch (err) {
      logger.debug({ err }, 'workspace of the deployment not read: retrying');
      return;
    }
    if (!isDeleted) return;
    clearInterval(timer);
    logger.error(
      { deploymentId, workspaceId },
      'workspace deleted: the agent server refuses requests and ends its runs',
    );
    await Promise.allSettled(publishing);
    for (const end of ends) {
      await end().catch((err: unknown) => logger.error({ err }, 'a part of the agent server did not end'));
    }
  }
  const timer = setInterval(() => {
    looking ??= look().finally(() => {
      looking = undefined;
    });
  }, lookEveryMs);

  return {
    get isDeleted() {
      return isDeleted;
    },
    dropWhenDeleted: (log) => ({
      schemaId: (topic) => log.schemaId(topic),
      async publish(topic, messages, onPlaced) {
        if (isDeleted) {
          onPlaced?.();
          return;
        }
        const published = log.publish(topic, messages, onPlaced);
        publishing.add(published);
        await published.finally(() => publishing.delete(published));
      },
    }),
    onDeleted: (end) => void ends.push(end),
    async stop() {
      clearInterval(timer);
      await looking;
    },
  };
}
