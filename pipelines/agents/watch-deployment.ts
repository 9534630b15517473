import type { Database } from '../../infra/postgres/database.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { isLiveWorkspace } from '../tenants/read-workspace.ts';
import type { ServedDeployment } from './open-deployment.ts';

const lookEveryMs = 2_000;

/** Whether the workspace of the deployment that this process serves was deleted. */
export interface DeploymentWatch {
  readonly isDeleted: boolean;
  /** Calls `end` once, when the workspace is deleted. What it throws is logged. */
  onDeleted(end: () => Promise<void>): void;
  stop(): Promise<void>;
}

/**
 * Looks every two seconds whether the workspace of a deployment is deleted; that is never taken back. While Postgres is away nothing ends.
 *
 * The deletion of the data (`delete-workspace-data.ts`) waits for processes of the deployment to end their runs, which their heartbeats
 * show.
 */
export function watchDeployment(
  database: Database,
  { deploymentId, operator: { workspaceId } }: ServedDeployment,
  logger: Logger,
): DeploymentWatch {
  const ends: (() => Promise<void>)[] = [];
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
    onDeleted: (end) => void ends.push(end),
    async stop() {
      clearInterval(timer);
      await looking;
    },
  };
}
