/** Deployments and revisions as the control plane API shows them, with the field names of the API. */
import type { ResourceSpec, SecretReference } from './driver.ts';
import type { RevisionStatus } from './states.ts';

export const deploymentSources = ['github', 'external_docker', 'internal_docker', 'internal_source'] as const;

export type DeploymentSource = (typeof deploymentSources)[number];

/** `dev_zero` is the type `serverless` of `langgraph deploy`, which is its default. */
export const deploymentTypes = ['dev_free', 'dev_zero', 'dev', 'prod'] as const;

/** Types of deployments that sleep without requests. */
export const sleepingTypes = ['dev_free', 'dev_zero', 'dev'] as const satisfies readonly DeploymentType[];

export type DeploymentType = (typeof deploymentTypes)[number];

export interface SourceConfig {
  readonly integration_id?: string | null;
  readonly repo_url?: string | null;
  readonly deployment_type?: DeploymentType | null;
  readonly build_on_push?: boolean | null;
  readonly custom_url?: string | null;
  readonly resource_spec?: ResourceSpec | null;
  readonly listener_id?: string | null;
  readonly listener_config?: Readonly<Record<string, unknown>> | null;
  readonly install_command?: string | null;
  readonly build_command?: string | null;
}

export interface SourceRevisionConfig {
  readonly repo_ref?: string | null;
  readonly langgraph_config_path?: string | null;
  readonly image_uri?: string | null;
  readonly source_tarball_path?: string | null;
  readonly repo_commit_sha?: string | null;
}

/** The parts of a deployment or revision that determine what runs. */
export interface SourceDescription {
  readonly source: DeploymentSource;
  readonly sourceConfig: SourceConfig;
  readonly sourceRevisionConfig: SourceRevisionConfig;
}

/** What a deployment runs, and with which resources. */
export interface RunDescription extends SourceDescription {
  readonly secretReferences: readonly SecretReference[];
}

/** `READY`: created. `AWAITING_DELETE`: its replicas drain, then its rows are deleted. */
export type DeploymentStatus = 'READY' | 'AWAITING_DELETE';

/** A deployment. Times are ISO 8601 with microseconds. */
export interface DeploymentRecord extends RunDescription {
  readonly id: string;
  readonly workspaceId: string;
  readonly name: string;
  readonly slug: string;
  readonly secretNames: readonly string[];
  readonly status: DeploymentStatus;
  readonly tracingProjectId: string | null;
  readonly latestRevisionId: string | null;
  readonly activeRevisionId: string | null;
  readonly createdAt: string;
  readonly updatedAt: string;
}

/** A revision: one version of the source and the settings of a deployment. */
export interface RevisionRecord {
  readonly id: string;
  readonly status: RevisionStatus;
  readonly source: DeploymentSource;
  readonly sourceRevisionConfig: SourceRevisionConfig;
  readonly createdAt: string;
  readonly updatedAt: string;
}

/**
 * The tracing project of `deployments AS d`. Its traces go to the project that has its name, which is not the one at its
 * creation if that was deleted or renamed.
 */
const tracingProjectSql = `coalesce((SELECT p.id FROM projects AS p WHERE p.workspace_id = d.workspace_id
  AND p.name = d.name AND p.deleted_at IS NULL), d.tracing_project_id)`;

/** Select list of a {@link DeploymentRecord} from `deployments AS d`. */
export const deploymentColumns = `d.id, d.workspace_id AS "workspaceId", d.name, d.slug, d.source,
  d.source_config AS "sourceConfig", d.source_revision_config AS "sourceRevisionConfig",
  d.secret_names AS "secretNames", d.secret_references AS "secretReferences",
  CASE WHEN d.deletion_requested_at IS NULL THEN 'READY' ELSE 'AWAITING_DELETE' END AS status,
  ${tracingProjectSql} AS "tracingProjectId", d.latest_revision_id AS "latestRevisionId",
  d.active_revision_id AS "activeRevisionId", d.created_at AS "createdAt", d.updated_at AS "updatedAt"`;

/** Select list of a {@link RevisionRecord} from `deployment_revisions AS r`. */
export const revisionColumns = `r.id, r.status, r.source, r.source_revision_config AS "sourceRevisionConfig",
  r.created_at AS "createdAt", r.updated_at AS "updatedAt"`;
