import type { FastifyRequest } from 'fastify';
import { type Static, type TSchema, Type } from 'typebox';
import type { Config } from '../../infra/config/settings.ts';
import { Dictionary } from '../../infra/json/dictionary.ts';
import {
  type DeploymentRecord,
  deploymentSources,
  deploymentTypes,
  type RevisionRecord,
} from '../../pipelines/deployments/deployment.ts';
import { maxSecrets } from '../../pipelines/deployments/deployment-secrets.ts';
import { maxReplicas } from '../../pipelines/deployments/replicas.ts';
import { revisionStatuses } from '../../pipelines/deployments/states.ts';
import { maxNameLength } from '../../pipelines/projects/project.ts';
import { JsonObject, nullable, OneOf, optional, Text, Timestamp, Uuid } from '../server/formats.ts';
import { pageParameters } from '../server/list-parameters.ts';
import { buildPageUrl } from '../server/public-base.ts';

/** Fields of deployments and revisions. Source: control plane API, version 2. */

export const readAccess = { permission: 'deployments:read', tenantScope: 'workspace' } as const;
export const writeAccess = { permission: 'deployments:write', tenantScope: 'workspace' } as const;

/** Parameters and response of lists of the control plane, which have smaller pages than others. */
export const pageQuery = { ...pageParameters, limit: Type.Integer({ minimum: 1, maximum: 100, default: 20 }) };
export const ResourcePage = <Resource extends TSchema>(resource: Resource) =>
  Type.Object({
    resources: Type.Array(resource),
    offset: Type.Integer({ description: 'Offset of the next page.' }),
  });

const Source = () => OneOf(deploymentSources);
const Scale = () => Type.Integer({ minimum: 0, maximum: maxReplicas });
const Cores = (maximum: number) => Type.Number({ minimum: 0.1, maximum });
const Megabytes = () => Type.Integer({ minimum: 1, maximum: 1_048_576 });

const ResourceSpec = Type.Object({
  min_scale: optional(Scale(), { description: 'Number of replicas; at least one runs.' }),
  max_scale: optional(Scale()),
  cpu: optional(Cores(8), { description: 'With the driver process: the number of worker processes of a replica.' }),
  cpu_limit: optional(Cores(16)),
  memory_mb: optional(Megabytes(), { description: 'With the driver process: the heap of each worker process.' }),
  memory_limit_mb: optional(Megabytes()),
  labels: optional(Dictionary(Type.String())),
  annotations: optional(Dictionary(Type.String())),
  service_account_name: optional(Type.String({ maxLength: 253 })),
  image_pull_secrets: optional(Type.Array(Type.Object({ name: Type.String({ maxLength: 253 }) }), { maxItems: 20 })),
  volumes: optional(Type.Array(JsonObject(), { maxItems: 50 })),
  volume_mounts: optional(Type.Array(JsonObject(), { maxItems: 50 })),
  init_containers: optional(Type.Array(JsonObject(), { maxItems: 20 })),
  sidecars: optional(Type.Array(JsonObject(), { maxItems: 20 })),
});

const Command = () => Text({ minLength: 1, maxLength: 4_096 });

const SourceConfig = Type.Object({
  integration_id: optional(Uuid()),
  repo_url: optional(Text({ maxLength: 2_048 }), { description: 'Git repository over https, http or ssh.' }),
  deployment_type: optional(OneOf(deploymentTypes)),
  build_on_push: optional(Type.Boolean()),
  custom_url: optional(Text({ maxLength: 2_048 }), {
    description:
      'Address that clients use. Only for images; read-only for sources that are built. Default: the address below this installation.',
  }),
  resource_spec: optional(ResourceSpec),
  listener_id: optional(Uuid()),
  listener_config: optional(JsonObject()),
  install_command: optional(Command(), {
    description: 'Runs in the root of the source. Default: npm, pnpm or yarn, by the lock file.',
  }),
  build_command: optional(Command(), { description: 'Runs in the folder of the langgraph.json.' }),
});

const SourceRevisionConfig = Type.Object({
  repo_ref: optional(Text({ minLength: 1, maxLength: 255 }), { description: 'Branch, refs/tags/… or commit.' }),
  langgraph_config_path: optional(Text({ minLength: 1, maxLength: 512 }), { description: 'Default: langgraph.json.' }),
  image_uri: optional(Text({ minLength: 1, maxLength: 512 })),
  source_tarball_path: optional(Text({ minLength: 1, maxLength: 512 }), {
    description: '`object_path` of POST /v2/deployments/{deployment_id}/upload-url.',
  }),
  repo_commit_sha: optional(Text({ maxLength: 64 }), { description: 'Read-only.' }),
});

const Secret = Type.Object({
  name: Text({ minLength: 1, maxLength: 255 }),
  value: Text({ maxLength: 65_536, description: 'Empty in responses. An empty value keeps the stored value.' }),
});
const Secrets = () =>
  Type.Array(Secret, {
    maxItems: maxSecrets,
    description: 'Environment variables of graph code, stored encrypted; at most 100,000 bytes together.',
  });

const SecretReference = Type.Object({
  name: Text({ minLength: 1, maxLength: 255 }),
  secret_name: Text({ minLength: 1, maxLength: 253 }),
  secret_key: Text({ minLength: 1, maxLength: 253 }),
});
const SecretReferences = () =>
  optional(Type.Array(SecretReference, { maxItems: maxSecrets }), { description: 'For the driver kubernetes.' });

const Name = () =>
  Text({ minLength: 1, maxLength: maxNameLength, description: 'Also the name of its tracing project.' });

export const DeploymentParams = Type.Object({ deployment_id: Uuid() });
export const RevisionParams = Type.Object({ deployment_id: Uuid(), revision_id: Uuid() });

export const DeploymentChange = Type.Object({
  revision_source: optional(Source(), { description: 'Source of the deployment from now on. Default: unchanged.' }),
  source_config: optional(SourceConfig),
  source_revision_config: optional(SourceRevisionConfig),
  secrets: optional(Secrets()),
  secret_references: SecretReferences(),
});

export const toDeploymentChange = (body: Static<typeof DeploymentChange>) => ({
  revisionSource: body.revision_source,
  sourceConfig: body.source_config,
  sourceRevisionConfig: body.source_revision_config,
  secrets: body.secrets,
  secretReferences: body.secret_references,
});

export const NewDeployment = Type.Object({
  name: Name(),
  source: Source(),
  source_config: SourceConfig,
  source_revision_config: SourceRevisionConfig,
  secrets: Secrets(),
  secret_references: SecretReferences(),
});

export const Deployment = Type.Object({
  id: Uuid(),
  tenant_id: Uuid(),
  name: Type.String(),
  source: Source(),
  source_config: JsonObject({ description: 'As in the request, with `custom_url`.' }),
  source_revision_config: JsonObject(),
  secrets: Type.Array(Type.Object({ name: Type.String(), value: Type.String() }), {
    description: 'Names; values are empty.',
  }),
  secret_references: Type.Array(SecretReference),
  status: OneOf(['READY', 'AWAITING_DELETE']),
  latest_revision_id: nullable(Uuid()),
  active_revision_id: nullable(Uuid(), { description: 'The revision that serves requests.' }),
  tracing_project_id: nullable(Uuid()),
  image_version: Type.Null(),
  created_at: Timestamp(),
  updated_at: Timestamp(),
});

export const Revision = Type.Object({
  id: Uuid(),
  status: OneOf(revisionStatuses),
  source: Source(),
  source_revision_config: JsonObject(),
  created_at: Timestamp(),
  updated_at: Timestamp(),
});

/** Formats a deployment. `request` determines the host of its URLs. */
export function formatDeployment(
  deployment: DeploymentRecord,
  request: FastifyRequest,
  config: Pick<Config, 'publicUrl'>,
): Static<typeof Deployment> {
  const { sourceConfig, secretNames, secretReferences, slug } = deployment;
  const customUrl = sourceConfig.custom_url ?? buildPageUrl(`/deployments/${slug}`, request, config);
  return {
    id: deployment.id,
    tenant_id: deployment.workspaceId,
    name: deployment.name,
    source: deployment.source,
    source_config: { ...sourceConfig, custom_url: customUrl },
    source_revision_config: { ...deployment.sourceRevisionConfig },
    secrets: secretNames.map((name) => ({ name, value: '' })),
    secret_references: secretReferences.map((reference) => ({ ...reference })),
    status: deployment.status,
    latest_revision_id: deployment.latestRevisionId,
    active_revision_id: deployment.activeRevisionId,
    tracing_project_id: deployment.tracingProjectId,
    image_version: null,
    created_at: deployment.createdAt,
    updated_at: deployment.updatedAt,
  };
}

export function formatRevision(revision: RevisionRecord): Static<typeof Revision> {
  return {
    id: revision.id,
    status: revision.status,
    source: revision.source,
    source_revision_config: { ...revision.sourceRevisionConfig },
    created_at: revision.createdAt,
    updated_at: revision.updatedAt,
  };
}
