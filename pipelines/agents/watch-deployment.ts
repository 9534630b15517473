import type { EventLog } from '../../infra/event-log/event-log.ts';
import type { Database } from '../../infra/postgres/database.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { isLiveWorkspace } from '../tenants/workspaces.ts';
import type { ServedDeployment } from './open-deployment.ts';

const checkEveryMs = 2_000;

type Publishing = Pick<EventLog, 'publish' | 'schemaId'>;

/** Detects that the workspace of the served deployment was deleted. */
export interface DeploymentWatch {
  readonly isDeleted: boolean;
  /** Wraps the event log: after the deletion of the workspace, `publish` drops all messages. */
  dropWhenDeleted(log: Publishing): Publishing;
  /** Calls `end` once, after the deletion of the workspace. Errors of `end` are logged. */
  onDeleted(end: () => Promise<void>): void;
  stop(): Promise<void>;
}

/**
 * Checks every two seconds whether the workspace of a deployment is deleted. A deletion is final. If Postgres is
 * unavailable, the process continues to serve.
 *
 * The deletion of the data (`delete-workspace-data.ts`) waits until no process of the deployment has a heartbeat. This
 * process first waits for the events that it is publishing, then ends its runs and removes its heartbeat. It drops all
 * later events.
 */
export function watchDeployment(
  database: Database,
  { deploymentId, operator: { workspaceId } }: ServedDeployment,
  logger: Logger,
): DeploymentWatch {
  const ends: (() => Promise<void>)[] = [];
  const publishing = new Set<Promise<void>>();
  let isDeleted = false;
  let checking: Promise<void> | undefined;

  async function check(): Promise<void> {
    try {
      isDeleted = !(await isLiveWorkspace(database, workspaceId));
    } catch (err) {
      logger.debug({ err }, 'workspace of the deployment could not be read: retrying');
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
      await end().catch((err: unknown) => logger.error({ err }, 'a part of the agent server did not stop'));
    }
  }
  const timer = setInterval(() => {
    checking ??= check().finally(() => {
      checking = undefined;
    });
  }, checkEveryMs);

  return {
    get isDeleted() {
      return isDeleted;
    },
    dropWhenDeleted: (log) => ({
      schemaId: (topic) => log.schemaId(topic),
      async publish(topic, messages, onOffsetsAssigned) {
        if (isDeleted) {
          onOffsetsAssigned?.();
          return;
        }
        const published = log.publish(topic, messages, onOffsetsAssigned);
        publishing.add(published);
        await published.finally(() => publishing.delete(published));
      },
    }),
    onDeleted: (end) => void ends.push(end),
    async stop() {
      clearInterval(timer);
      await checking;
    },
  };
}
