/**
 * Deletes deployments whose deletion was requested.
 *
 *   1. Hosts stop the replicas, which are no longer wanted. Until then nothing is deleted.
 *   2. Close the row of the agent server, so that no row is added to it; delete the rows of the agent server
 *      (`delete-agent-rows.ts`).
 *   3. Delete the uploaded sources and, if that was requested, the tracing project.
 *   4. Delete the deployment with its revisions, logs and secrets.
 *
 * Each step may be repeated. Traces and usage stay. A deletion that fails is retried with backoff, and blocks no other.
 */
import { LRUCache } from 'lru-cache';
import type { Config } from '../../infra/config/settings.ts';
import { isRunlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/database.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { computeBackoffMs } from '../../infra/timeouts/backoff.ts';
import { type AgentRowsDeps, deleteAgentRows } from '../agents/delete-agent-rows.ts';
import { deleteProjects } from '../projects/delete-projects.ts';
import type { ProjectResolver } from '../projects/resolve-project.ts';
import type { SourceStore } from './source-store.ts';

export interface DeletionDeps extends AgentRowsDeps {
  readonly database: Database;
  readonly logger: Logger;
  readonly sourceStore: SourceStore;
  readonly projects: ProjectResolver;
  readonly enqueueProjectDeletion: (project: { workspaceId: string; projectId: string }) => Promise<void>;
  readonly config: Pick<Config, 'deploymentsRestartDelayMs'>;
}

interface DeletedDeployment {
  readonly id: string;
  readonly workspaceId: string;
  readonly projectId: string | null;
}

/** The deletions of a host. Two hosts may delete the same deployment. */
export interface Deletions {
  /** Begins the deletions that are due, without waiting for them. @throws errors of the database */
  start(): Promise<void>;
  /** Resolves when no deletion is in progress. Never rejects. */
  settle(): Promise<void>;
}

/** Maximum number of deletions of a host at once. */
const maxAtOnce = 4;
const maxRetryDelayMs = 600_000;
/** Failed deletions whose backoff is known. Others are retried at once. */
const maxKnownFailures = 10_000;

/** @param signal aborted when the host stops; it ends deletions between two of their statements. */
export function createDeletions(deps: DeletionDeps, signal: AbortSignal): Deletions {
  const { database, logger, config } = deps;
  const inProgress = new Map<string, Promise<void>>();
  const failed = new LRUCache<string, { readonly failures: number; readonly dueAtMs: number }>({
    max: maxKnownFailures,
  });

  async function attempt(deployment: DeletedDeployment): Promise<void> {
    const { id: deploymentId } = deployment;
    try {
      await deleteDeployment(deps, deployment, signal);
      failed.delete(deploymentId);
      logger.info({ deploymentId }, 'deployment deleted');
    } catch (err) {
      if (signal.aborted) return;
      const failures = (failed.get(deploymentId)?.failures ?? 0) + 1;
      const delayMs = computeBackoffMs(failures - 1, config.deploymentsRestartDelayMs, maxRetryDelayMs);
      failed.set(deploymentId, { failures, dueAtMs: performance.now() + delayMs });
      logger.warn({ err, deploymentId, failures, delayMs }, 'deployment could not be deleted; retrying');
    } finally {
      inProgress.delete(deploymentId);
    }
  }

  return {
    async start() {
      const slots = maxAtOnce - inProgress.size;
      if (slots === 0) return;
      const later = [...failed.entries()].filter(([, { dueAtMs }]) => dueAtMs > performance.now());
      const due = await database.query<DeletedDeployment>(
        `SELECT d.id, d.workspace_id AS "workspaceId",
           CASE WHEN d.deletes_project THEN d.tracing_project_id END AS "projectId"
         FROM deployments AS d WHERE d.deletion_requested_at IS NOT NULL AND d.id <> ALL ($1::uuid[]) AND NOT EXISTS (
           SELECT FROM deployment_replicas AS p WHERE p.deployment_id = d.id AND p.lease_until > clock_timestamp())
         ORDER BY d.deletion_requested_at LIMIT $2`,
        [[...inProgress.keys(), ...later.map(([id]) => id)], slots],
      );
      for (const deployment of due) inProgress.set(deployment.id, attempt(deployment));
    },
    async settle() {
      await Promise.all(inProgress.values());
    },
  };
}

async function deleteDeployment(
  deps: DeletionDeps,
  { id, workspaceId, projectId }: DeletedDeployment,
  signal: AbortSignal,
): Promise<void> {
  const { database, sourceStore } = deps;
  await deleteAgentRows(deps, [id], signal);
  const uploads = await database.query<{ path: string }>(
    'SELECT object_path AS path FROM source_uploads WHERE deployment_id = $1',
    [id],
  );
  for (const { path } of uploads) await (await sourceStore.open()).delete(path);
  if (projectId !== null) {
    await deleteProjects(deps, workspaceId, [projectId]).catch((error: unknown) => {
      // Its owner has deleted the project before.
      if (!isRunlakeError(error) || error.code !== 'NOT_FOUND') throw error;
    });
  }
  await database.execute('DELETE FROM deployments WHERE id = $1', [id]);
}
