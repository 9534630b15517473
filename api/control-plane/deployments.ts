import { Type } from 'typebox';
import { isRunlakeError } from '../../infra/errors/runlake-error.ts';
import { deploymentTypes } from '../../pipelines/deployments/deployment.ts';
import { listDeployments as list, readDeployment } from '../../pipelines/deployments/read-deployments.ts';
import { requestDeletion } from '../../pipelines/deployments/request-deletion.ts';
import {
  createDeployment as create,
  updateDeployment as update,
} from '../../pipelines/deployments/write-deployment.ts';
import { requirePermission } from '../../pipelines/tenants/caller.ts';
import { OneOf, Text, Uuid } from '../server/formats.ts';
import { defineOperation, RawResponse } from '../server/operation.ts';
import {
  Deployment,
  DeploymentChange,
  DeploymentParams,
  formatDeployment,
  NewDeployment,
  pageQuery,
  ResourcePage,
  readAccess,
  toDeploymentChange,
  writeAccess,
} from './deployment-fields.ts';

const createDeployment = defineOperation({
  operationId: 'createDeployment',
  method: 'POST',
  path: '/v2/deployments',
  summary: 'Create a deployment',
  description:
    'Creates a tracing project of the same name, and a revision, which a host builds and starts. A source of the kind internal_source is ' +
    'uploaded afterwards; PATCH with its path then creates the first revision.',
  access: writeAccess,
  errors: ['DEPLOYMENT_INVALID', 'BAD_REQUEST', 'CONFLICT', 'LIMIT_REACHED'],
  schema: { body: NewDeployment, response: { 201: Deployment } },
  handler: async ({ caller, body, services, request }) => {
    const deployment = await create(services, caller, {
      name: body.name,
      source: body.source,
      sourceConfig: body.source_config,
      sourceRevisionConfig: body.source_revision_config,
      secrets: body.secrets,
      secretReferences: body.secret_references ?? [],
    });
    return formatDeployment(deployment, request, services.config);
  },
});

const uuidPattern = '[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}';

const listDeployments = defineOperation({
  operationId: 'listDeployments',
  method: 'GET',
  path: '/v2/deployments',
  summary: 'List the deployments of the workspace, newest first',
  access: readAccess,
  errors: ['ANSWER_TOO_LARGE'],
  unsupported: { query: ['tag_value_ids', 'image_version', 'remote_reconciled'] },
  schema: {
    query: Type.Object({
      ...pageQuery,
      name_contains: Type.Optional(Text({ maxLength: 512 })),
      status: Type.Optional(Type.String()),
      deployment_type: Type.Optional(OneOf(deploymentTypes)),
      deployment_ids: Type.Optional(
        Type.String({
          pattern: `^${uuidPattern}(?:,\\s*${uuidPattern})*$`,
          maxLength: 3_800,
          description: 'Separated by commas.',
        }),
      ),
    }),
    response: { 200: ResourcePage(Deployment) },
  },
  handler: async ({ caller, query, services, request }) => {
    const { limit, offset } = query;
    const filter = {
      nameContains: query.name_contains,
      status: query.status,
      deploymentType: query.deployment_type,
      ids: query.deployment_ids?.split(',').map((id) => id.trim()),
    };
    const found = await list(services.database, caller.workspaceId, filter, { limit, offset });
    const resources = found.map((deployment) => formatDeployment(deployment, request, services.config));
    return { resources, offset: offset + resources.length };
  },
});

const getDeployment = defineOperation({
  operationId: 'getDeployment',
  method: 'GET',
  path: '/v2/deployments/:deployment_id',
  summary: 'Get a deployment',
  access: readAccess,
  errors: ['NOT_FOUND'],
  schema: { params: DeploymentParams, response: { 200: Deployment } },
  handler: async ({ caller, params, services, request }) =>
    formatDeployment(
      await readDeployment(services.database, caller.workspaceId, params.deployment_id),
      request,
      services.config,
    ),
});

const updateDeployment = defineOperation({
  operationId: 'updateDeployment',
  method: 'PATCH',
  path: '/v2/deployments/:deployment_id',
  summary: 'Change a deployment',
  description:
    'Absent and null fields stay unchanged. A change of the source, the secrets or `resource_spec` creates a revision; an unfinished ' +
    'revision ends as SKIPPED or INTERRUPTED. The active revision serves until the new one answers.',
  access: writeAccess,
  errors: ['NOT_FOUND', 'DEPLOYMENT_INVALID'],
  schema: { params: DeploymentParams, body: DeploymentChange, response: { 200: Deployment } },
  handler: async ({ caller, params, body, services, request }) => {
    const change = toDeploymentChange(body);
    const deployment = await update(services, caller, params.deployment_id, change, { always: false });
    return formatDeployment(deployment, request, services.config);
  },
});

const DeletionQuery = {
  delete_tracing_project: Type.Boolean({
    default: false,
    description: 'Needs the permission projects:delete too. The name is free again when both are deleted.',
  }),
};

const deleteDeployment = defineOperation({
  operationId: 'deleteDeployment',
  method: 'DELETE',
  path: '/v2/deployments/:deployment_id',
  summary: 'Delete a deployment',
  description:
    'Its replicas drain; then a host deletes its threads, runs, crons, stored items, revisions and secrets. Until then its status is ' +
    'AWAITING_DELETE. Traces and usage stay, unless the tracing project is deleted too.',
  access: writeAccess,
  errors: ['NOT_FOUND'],
  schema: { params: DeploymentParams, query: Type.Object(DeletionQuery), response: { 204: Type.Null() } },
  handler: async ({ caller, params, query, services }) => {
    const deletesProject = query.delete_tracing_project;
    if (deletesProject) requirePermission(caller, 'projects:delete');
    await requestDeletion(services.database, caller.workspaceId, params.deployment_id, { deletesProject });
    return null;
  },
});

const DeletionResult = Type.Object({ deleted: Type.Array(Uuid()), not_found: Type.Array(Uuid()) });

const deleteDeployments = defineOperation({
  operationId: 'deleteDeployments',
  method: 'DELETE',
  path: '/v2/deployments',
  summary: 'Delete several deployments',
  description: 'Status 207 if some of them do not exist; the others are deleted.',
  access: writeAccess,
  schema: {
    query: Type.Object({ deployment_ids: Type.Array(Uuid(), { minItems: 1, maxItems: 100 }), ...DeletionQuery }),
    response: { 200: DeletionResult, 207: DeletionResult },
  },
  handler: async ({ caller, query, services }) => {
    const result = { deleted: [] as string[], not_found: [] as string[] };
    const deletesProject = query.delete_tracing_project;
    if (deletesProject) requirePermission(caller, 'projects:delete');
    for (const id of new Set(query.deployment_ids.map((id) => id.toLowerCase()))) {
      try {
        await requestDeletion(services.database, caller.workspaceId, id, { deletesProject });
        result.deleted.push(id);
      } catch (error) {
        if (!isRunlakeError(error) || error.code !== 'NOT_FOUND') throw error;
        result.not_found.push(id);
      }
    }
    return new RawResponse({ status: result.not_found.length > 0 ? 207 : 200, body: result });
  },
});

export const deploymentOperations = [
  createDeployment,
  listDeployments,
  getDeployment,
  updateDeployment,
  deleteDeployment,
  deleteDeployments,
];
