import { Type } from 'typebox';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { listRevisions as list, listTransitions, readRevision } from '../../pipelines/deployments/read-deployments.ts';
import { type RevisionStatus, revisionStatuses } from '../../pipelines/deployments/states.ts';
import { redeploy, updateDeployment } from '../../pipelines/deployments/write-deployment.ts';
import { nullable, Timestamp } from '../server/formats.ts';
import { defineOperation } from '../server/operation.ts';
import {
  Deployment,
  DeploymentChange,
  DeploymentParams,
  formatDeployment,
  formatRevision,
  pageQuery,
  ResourcePage,
  Revision,
  RevisionParams,
  readAccess,
  toDeploymentChange,
  writeAccess,
} from './deployment-fields.ts';

/** Parses a list of statuses, separated by commas. @throws BAD_REQUEST */
function parseStatuses(text: string | undefined): RevisionStatus[] | undefined {
  return text?.split(',').map((part) => {
    const status = part.trim().toUpperCase();
    if ((revisionStatuses as readonly string[]).includes(status)) return status as RevisionStatus;
    throw runlakeError('BAD_REQUEST', { reason: `'${part.trim()}' is not a status of revisions.` });
  });
}

const listRevisions = defineOperation({
  operationId: 'listRevisions',
  method: 'GET',
  path: '/v2/deployments/:deployment_id/revisions',
  summary: 'List the revisions of a deployment, newest first',
  access: readAccess,
  errors: ['NOT_FOUND', 'BAD_REQUEST'],
  unsupported: { query: ['remote_reconciled'] },
  schema: {
    params: DeploymentParams,
    query: Type.Object({
      ...pageQuery,
      status: Type.Optional(Type.String({ maxLength: 500, description: 'Statuses, separated by commas.' })),
    }),
    response: { 200: ResourcePage(Revision) },
  },
  handler: async ({ caller, params, query, services }) => {
    const { limit, offset } = query;
    const statuses = parseStatuses(query.status);
    const found = await list(services.database, caller.workspaceId, params.deployment_id, { statuses, limit, offset });
    return { resources: found.map(formatRevision), offset: offset + found.length };
  },
});

const Transition = Type.Object({
  at: Timestamp(),
  from_status: nullable(Type.String()),
  to_status: Type.String(),
  reason: Type.String(),
});

const getRevision = defineOperation({
  operationId: 'getRevision',
  method: 'GET',
  path: '/v2/deployments/:deployment_id/revisions/:revision_id',
  summary: 'Get a revision with its history',
  access: readAccess,
  errors: ['NOT_FOUND'],
  schema: {
    params: RevisionParams,
    response: {
      200: Type.Object({
        ...Revision.properties,
        transitions: Type.Array(Transition, { description: 'Oldest first.' }),
      }),
    },
  },
  handler: async ({ caller, params, services }) => {
    const { database } = services;
    const revision = await readRevision(database, caller.workspaceId, params.deployment_id, params.revision_id);
    const transitions = await listTransitions(database, revision);
    return {
      ...formatRevision(revision),
      transitions: transitions.map(({ at, from, to, reason }) => ({ at, from_status: from, to_status: to, reason })),
    };
  },
});

const createRevision = defineOperation({
  operationId: 'createRevision',
  method: 'POST',
  path: '/v2/deployments/:deployment_id/revisions',
  summary: 'Change a deployment and create a revision',
  description: 'Like PATCH of the deployment, but always creates a revision.',
  access: writeAccess,
  errors: ['NOT_FOUND', 'DEPLOYMENT_INVALID'],
  schema: { params: DeploymentParams, body: DeploymentChange, response: { 201: Revision } },
  handler: async ({ caller, params, body, services }) => {
    const change = toDeploymentChange(body);
    const changed = await updateDeployment(services, caller, params.deployment_id, change, { always: true });
    const { workspaceId } = caller;
    return formatRevision(
      await readRevision(services.database, workspaceId, params.deployment_id, String(changed.latestRevisionId)),
    );
  },
});

const redeployRevision = defineOperation({
  operationId: 'redeployRevision',
  method: 'POST',
  path: '/v2/deployments/:deployment_id/revisions/:revision_id/redeploy',
  summary: 'Deploy a revision again',
  description:
    'Creates a revision with the source, the settings and the secrets of this one; a git source is built from the same commit. The deployment ' +
    'gets them too. With an earlier revision, this is a rollback.',
  access: writeAccess,
  errors: ['NOT_FOUND'],
  schema: { params: RevisionParams, response: { 200: Deployment } },
  handler: async ({ caller, params, services, request }) =>
    formatDeployment(
      await redeploy(services, caller, params.deployment_id, params.revision_id),
      request,
      services.config,
    ),
});

export const revisionOperations = [listRevisions, getRevision, createRevision, redeployRevision];
