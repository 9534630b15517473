/** Creates and changes deployments. Hosts do the work that follows: see `host.ts`. */
import { randomUUID } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { dropNullish } from '../../infra/collections/drop-nullish.ts';
import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database, Sql } from '../../infra/postgres/database.ts';
import { createOrFind, getViolatedConstraint } from '../../infra/postgres/database-error.ts';
import type { Sealer } from '../../infra/sealing/sealer.ts';
import type { ProjectResolver } from '../projects/resolve-project.ts';
import type { WorkspaceCaller } from '../tenants/caller.ts';
import { enforceLimit } from '../tenants/enforce-limit.ts';
import { checkDeployment, removeReadOnly, requireOperatorForObjects } from './check-source.ts';
import { createRevision } from './create-revision.ts';
import type {
  DeploymentRecord,
  DeploymentSource,
  RunDescription,
  SourceConfig,
  SourceRevisionConfig,
} from './deployment.ts';
import {
  type DeploymentSecret,
  mergeSecrets,
  openRevisionSecrets,
  openSecrets,
  type SecretValues,
  sealSecrets,
} from './deployment-secrets.ts';
import type { SecretReference } from './driver.ts';
import { type LockedDeployment, lockDeployment, lockedColumns } from './lock-deployment.ts';
import { listDeployments, readDeployment } from './read-deployments.ts';
import { requireUploadedSource } from './uploads.ts';

export interface WriteDeps {
  readonly database: Database;
  readonly projects: ProjectResolver;
  readonly secretSealer: Sealer;
  readonly config: Pick<Config, 'deploymentsDriver' | 'maxDeployments'>;
}

export interface NewDeployment extends RunDescription {
  readonly name: string;
  readonly secrets: readonly DeploymentSecret[];
}

/**
 * Creates a deployment, its tracing project, and its first revision unless its source has still to be uploaded.
 *
 * @throws DEPLOYMENT_INVALID, BAD_REQUEST for an unusable name, CONFLICT if the name is taken, LIMIT_REACHED
 */
export async function createDeployment(
  deps: WriteDeps,
  caller: WorkspaceCaller,
  deployment: NewDeployment,
): Promise<DeploymentRecord> {
  const { database, projects, secretSealer, config } = deps;
  const { organizationId, workspaceId } = caller;
  const { name, source, secretReferences } = deployment;
  const sourceConfig = removeReadOnly(deployment.sourceConfig, source);
  const sourceRevisionConfig = { ...deployment.sourceRevisionConfig, repo_commit_sha: null };
  checkDeployment({ source, sourceConfig, sourceRevisionConfig, secretReferences }, config.deploymentsDriver);
  await requireOperatorForObjects(database, caller, { sourceConfig, secretReferences });
  if (sourceRevisionConfig.source_tarball_path != null) {
    const reason = 'a source can be uploaded only after the deployment was created';
    throw runlakeError('DEPLOYMENT_INVALID', { field: 'source_revision_config.source_tarball_path', reason });
  }
  const secrets = mergeSecrets(deployment.secrets, {});
  await requireFreeName(database, workspaceId, name);
  const enforceMaxDeployments = (tx: Sql, max: number) =>
    enforceLimit(tx, 'workspace', workspaceId, {
      max,
      countSql: 'SELECT count(*) AS count FROM deployments WHERE workspace_id = $1',
      createError: () =>
        runlakeError('LIMIT_REACHED', {
          limit: config.maxDeployments,
          what: 'deployments in a workspace',
          hint: 'Delete those that are not needed',
        }),
    });
  // A refused deployment must not leave a project.
  await database.transaction((tx) => enforceMaxDeployments(tx, config.maxDeployments - 1));
  const projectId = await projects.resolve({ workspaceId, sessionName: name, isPatch: false });
  const id = randomUUID();
  const slugs = [toSlug(name), `${toSlug(name)}-${id.slice(0, 8)}`];
  for (const slug of slugs) {
    try {
      const create = async (tx: Sql) => {
        if (!(await reserveSlug(tx, organizationId, slug))) return undefined;
        await tx.execute(
          'INSERT INTO agents.deployments (deployment_id, organization_id, workspace_id, name) VALUES ($1, $2, $3, $4)',
          [id, organizationId, workspaceId, name],
        );
        await tx.execute(
          `INSERT INTO deployments (id, organization_id, workspace_id, name, slug, source, source_config,
             source_revision_config, sealed_secrets, secret_names, secret_references, tracing_project_id)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11::text::json, $12)`,
          [
            ...[id, organizationId, workspaceId, name, slug, source, sourceConfig, sourceRevisionConfig],
            sealSecrets(secretSealer, `deployment ${id}`, secrets),
            Object.keys(secrets),
            JSON.stringify(secretReferences),
            projectId,
          ],
        );
        await createRevision(
          tx,
          secretSealer,
          await lockDeployment(tx, workspaceId, id),
          'The deployment was created.',
        );
        await enforceMaxDeployments(tx, config.maxDeployments);
        return readDeployment(tx, workspaceId, id);
      };
      // The client repeats a request whose commit was not answered, and would get the error of a name that is taken.
      const created = await createOrFind(
        () => database.transaction(create),
        async () => (await listDeployments(database, workspaceId, { ids: [id] }, { limit: 1, offset: 0 }))[0],
      );
      if (created) return created;
    } catch (error) {
      const constraint = getViolatedConstraint(error);
      if (constraint === 'deployment_name_unique') throw createNameConflict(name);
      if (constraint !== 'deployment_slug_unique' || slug === slugs.at(-1)) throw error;
    }
  }
  throw runlakeError('INTERNAL');
}

const createNameConflict = (name: string) =>
  runlakeError('CONFLICT', { reason: `The workspace has a deployment with the name '${name}'.` });

async function requireFreeName(database: Sql, workspaceId: string, name: string): Promise<void> {
  const taken = await database.query<{ isEnding: boolean }>(
    `SELECT deletion_requested_at IS NOT NULL AS "isEnding" FROM deployments
     WHERE workspace_id = $1 AND name = $2 AND (deletion_requested_at IS NULL OR deletes_project)`,
    [workspaceId, name],
  );
  if (taken.some(({ isEnding }) => !isEnding)) throw createNameConflict(name);
  // The new deployment would get that project.
  if (taken.length > 0)
    throw runlakeError('CONFLICT', {
      reason: `A deployment with the name '${name}' is being deleted with its tracing project. Try again when that has ended.`,
    });
}

/**
 * Reserves a slug for the organisation for ever: clients of a deleted deployment still send their keys to its address.
 *
 * @returns false if another organisation has or had the slug.
 */
async function reserveSlug(tx: Sql, organizationId: string, slug: string): Promise<boolean> {
  await tx.execute('INSERT INTO deployment_slugs (slug, organization_id) VALUES ($1, $2) ON CONFLICT DO NOTHING', [
    slug,
    organizationId,
  ]);
  const own = await tx.query('SELECT FROM deployment_slugs WHERE slug = $1 AND organization_id = $2', [
    slug,
    organizationId,
  ]);
  return own.length > 0;
}

const maxSlugLength = 48;

/** Returns the name of a deployment in addresses: lower-case letters, digits and hyphens. */
function toSlug(name: string): string {
  const plain = name
    .normalize('NFKD')
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .slice(0, maxSlugLength)
    .replace(/^-+|-+$/g, '');
  return plain === '' ? 'deployment' : plain;
}

/** Changes of a deployment. Absent and null fields stay unchanged. */
export interface DeploymentChange {
  /** Source of the new revision and, from then on, of the deployment. Default: that of the deployment. */
  readonly revisionSource?: DeploymentSource | null | undefined;
  readonly sourceConfig?: SourceConfig | null | undefined;
  readonly sourceRevisionConfig?: SourceRevisionConfig | null | undefined;
  readonly secrets?: readonly DeploymentSecret[] | null | undefined;
  readonly secretReferences?: readonly SecretReference[] | null | undefined;
}

const unchangeable = ['integration_id', 'repo_url', 'deployment_type', 'listener_id'] as const;

/**
 * Changes a deployment. A revision is created if the change affects what runs, or if `always` is set.
 *
 * @throws NOT_FOUND, DEPLOYMENT_INVALID
 */
export async function updateDeployment(
  { database, secretSealer, config }: WriteDeps,
  { organizationId, workspaceId }: Pick<WorkspaceCaller, 'organizationId' | 'workspaceId'>,
  deploymentId: string,
  change: DeploymentChange,
  { always }: { readonly always: boolean },
): Promise<DeploymentRecord> {
  return database.transaction(async (tx) => {
    const deployment = await lockDeployment(tx, workspaceId, deploymentId);
    for (const name of unchangeable) {
      const value = change.sourceConfig?.[name];
      if (value != null && value !== (deployment.sourceConfig[name] ?? null)) {
        throw runlakeError('DEPLOYMENT_INVALID', { field: `source_config.${name}`, reason: 'it cannot be changed' });
      }
    }
    const source = change.revisionSource ?? deployment.source;
    const sourceConfig = {
      ...deployment.sourceConfig,
      ...dropNullish(removeReadOnly(change.sourceConfig, source, deployment.slug)),
    };
    const sourceRevisionConfig = {
      ...deployment.sourceRevisionConfig,
      ...dropNullish(change.sourceRevisionConfig),
      repo_commit_sha: null,
    };
    const secretReferences = change.secretReferences ?? deployment.secretReferences;
    checkDeployment({ source, sourceConfig, sourceRevisionConfig, secretReferences }, config.deploymentsDriver);
    await requireOperatorForObjects(tx, { organizationId }, { sourceConfig, secretReferences });
    if (change.sourceRevisionConfig?.source_tarball_path != null) {
      await requireUploadedSource(tx, deployment.id, change.sourceRevisionConfig.source_tarball_path);
    }
    const stored = openSecrets(secretSealer, `deployment ${deployment.id}`, deployment.sealedSecrets);
    const secrets = change.secrets == null ? stored : mergeSecrets(change.secrets, stored);
    const changed = await writeSnapshot(tx, secretSealer, deployment.id, {
      source,
      sourceConfig,
      sourceRevisionConfig,
      secretReferences,
      secrets,
    });
    const affectsRun =
      source !== deployment.source ||
      change.secrets != null ||
      change.secretReferences != null ||
      change.sourceConfig?.resource_spec != null ||
      Object.values(change.sourceRevisionConfig ?? {}).some((value) => value != null);
    if (always || affectsRun) {
      const reason = 'The deployment was changed.';
      await createRevision(tx, secretSealer, changed, reason, { required: always });
    }
    return readDeployment(tx, workspaceId, deploymentId);
  });
}

/**
 * Creates a revision with the source, settings and secrets of an earlier one, which also become those of the
 * deployment. A git source is built from the same commit.
 *
 * @throws NOT_FOUND
 */
export async function redeploy(
  { database, secretSealer }: Pick<WriteDeps, 'database' | 'secretSealer'>,
  { workspaceId }: Pick<WorkspaceCaller, 'workspaceId'>,
  deploymentId: string,
  revisionId: string,
): Promise<DeploymentRecord> {
  return database.transaction(async (tx) => {
    await lockDeployment(tx, workspaceId, deploymentId);
    const [revision] = await tx.query<RunDescription & { sealedSecrets: string | null; number: number }>(
      `SELECT source, source_config AS "sourceConfig", source_revision_config AS "sourceRevisionConfig",
         sealed_secrets AS "sealedSecrets", secret_references AS "secretReferences", number
       FROM deployment_revisions WHERE id = $1 AND deployment_id = $2 AND workspace_id = $3`,
      [revisionId, deploymentId, workspaceId],
    );
    if (revision === undefined) throw runlakeError('NOT_FOUND', { what: 'Revision' });
    const secrets = openRevisionSecrets(secretSealer, { ...revision, revisionId: revisionId.toLowerCase() });
    const changed = await writeSnapshot(tx, secretSealer, deploymentId.toLowerCase(), { ...revision, secrets });
    const reason = `Revision ${revision.number} was deployed again.`;
    await createRevision(tx, secretSealer, changed, reason);
    return readDeployment(tx, workspaceId, deploymentId);
  });
}

interface Snapshot extends RunDescription {
  readonly secrets: SecretValues;
}

/** Writes a snapshot to the row of a locked deployment. @returns the changed row */
async function writeSnapshot(
  tx: Sql,
  sealer: Sealer,
  deploymentId: string,
  snapshot: Snapshot,
): Promise<LockedDeployment> {
  const owner = `deployment ${deploymentId}` as const;
  const [stored] = await tx.query<{ sealed: string | null }>(
    'SELECT sealed_secrets AS sealed FROM deployments WHERE id = $1',
    [deploymentId],
  );
  const sealed = stored?.sealed ?? null;
  // Keep unchanged secrets, because sealing them again produces other texts, which the audit log would show as a
  // change.
  const isSame = isDeepStrictEqual(openSecrets(sealer, owner, sealed), snapshot.secrets);
  const [changed] = await tx.query<LockedDeployment>(
    `UPDATE deployments AS d SET source_config = $2, source_revision_config = $3, sealed_secrets = $4, secret_names = $5,
       secret_references = $6::text::json, source = $7, updated_at = now() WHERE id = $1 RETURNING ${lockedColumns}`,
    [
      deploymentId,
      snapshot.sourceConfig,
      snapshot.sourceRevisionConfig,
      isSame ? sealed : sealSecrets(sealer, owner, snapshot.secrets),
      Object.keys(snapshot.secrets),
      JSON.stringify(snapshot.secretReferences),
      snapshot.source,
    ],
  );
  return changed!;
}
