import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { EventLog } from '../../infra/event-log/event-log.ts';
import type { Database } from '../../infra/postgres/database.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { startRepeating } from '../../infra/timeouts/repeat.ts';
import type { WorkspaceCaller } from '../tenants/caller.ts';
import { loadOperator } from '../tenants/operator.ts';
import { findOrganizationId } from '../tenants/workspaces.ts';

/** The deployment that an agent server process serves. */
export interface ServedDeployment {
  readonly deploymentId: string;
  /**
   * The caller identity with which the agent server calls other parts of Runlake, in the workspace of the deployment.
   */
  readonly operator: WorkspaceCaller;
  /** Name of the tracing project of a deployment of the control plane. Unset: graphs have projects of their own. */
  readonly project?: string;
}

interface DeploymentRow {
  readonly organization_id: string;
  readonly workspace_id: string;
  readonly workspace_deleted: boolean;
  readonly project: string | null;
}

/**
 * Reads the deployment that the setting names or, if the setting is unset, the default deployment of the oldest
 * organisation. A default deployment has the id of its organisation. If it does not exist, this function creates it in
 * the first workspace of the organisation.
 *
 * @throws NOT_FOUND if the deployment does not exist, DEPLOYMENT_WITHOUT_WORKSPACE if its workspace was
 *   deleted.
 */
export async function openDeployment(
  database: Database,
  settings: Pick<Config, 'agentsDeployment'>,
): Promise<ServedDeployment> {
  const named = settings.agentsDeployment;
  const deploymentId =
    named === undefined || (await organizationExists(database, named))
      ? await openDefaultDeployment(database, named)
      : named;
  const [row] = await database.query<DeploymentRow>(
    `SELECT deployment.organization_id, deployment.workspace_id, workspace.deleted_at IS NOT NULL AS workspace_deleted,
       managed.name AS project
     FROM agents.deployments deployment JOIN workspaces workspace ON workspace.id = deployment.workspace_id
       LEFT JOIN deployments managed ON managed.id = deployment.deployment_id
     WHERE deployment_id = $1`,
    [deploymentId],
  );
  if (row === undefined)
    throw runlakeError('NOT_FOUND', { what: `Deployment ${deploymentId} (RUNLAKE_AGENTS_DEPLOYMENT)` });
  const { organization_id: organizationId, workspace_id: workspaceId } = row;
  if (row.workspace_deleted) {
    throw runlakeError('DEPLOYMENT_WITHOUT_WORKSPACE', { deployment: deploymentId, workspace: workspaceId });
  }
  const operator = { ...(await loadOperator(database, organizationId)), workspaceId };
  return { deploymentId, operator, ...(row.project !== null && { project: row.project }) };
}

async function organizationExists(database: Database, id: string): Promise<boolean> {
  return (await database.query('SELECT FROM organizations WHERE id = $1', [id])).length > 0;
}

async function openDefaultDeployment(database: Database, organizationId: string | undefined): Promise<string> {
  const operator = await loadOperator(database, organizationId);
  await database.execute(
    `INSERT INTO agents.deployments (deployment_id, organization_id, workspace_id, name) VALUES ($1, $1, $2, 'default')
     ON CONFLICT DO NOTHING`,
    [operator.organizationId, operator.workspaceId],
  );
  return operator.organizationId;
}

const checkIntervalMs = 2_000;

type Publisher = Pick<EventLog, 'publish' | 'schemaId'>;

/** Detects that the workspace of the served deployment was deleted. */
export interface DeploymentWatch {
  readonly isDeleted: boolean;
  /** Wraps the event log: after the deletion of the workspace, `publish` drops all messages. */
  dropWhenDeleted(log: Publisher): Publisher;
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
  const pendingPublishes = new Set<Promise<void>>();
  let isDeleted = false;

  async function check(): Promise<void> {
    isDeleted = (await findOrganizationId(database, workspaceId)) === undefined;
    if (!isDeleted) return;
    void checks.stop();
    logger.error(
      { deploymentId, workspaceId },
      'workspace deleted: the agent server refuses requests and ends its runs',
    );
    for (const end of ends) await callEnd(end);
  }

  async function callEnd(end: () => Promise<void>): Promise<void> {
    await Promise.allSettled(pendingPublishes);
    await end().catch((err: unknown) => logger.error({ err }, 'a part of the agent server did not stop'));
  }
  const checks = startRepeating(check, {
    maxPauseMs: checkIntervalMs,
    onFailure: (err) => logger.debug({ err }, 'workspace of the deployment could not be read: retrying'),
  });

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
        pendingPublishes.add(published);
        await published.finally(() => pendingPublishes.delete(published));
      },
    }),
    // The deletion may be known before all parts of the agent server have started.
    onDeleted: (end) => void (isDeleted ? callEnd(end) : ends.push(end)),
    stop: checks.stop,
  };
}
