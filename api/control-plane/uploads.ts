import { Type } from 'typebox';
import { createUpload, receiveUpload } from '../../pipelines/deployments/uploads.ts';
import { removeRequestTimeLimit } from '../server/connection-limits.ts';
import { defineOperation, RawResponse } from '../server/operation.ts';
import { buildPublicUrl } from '../server/public-base.ts';
import { DeploymentParams, writeAccess } from './deployment-fields.ts';

const createUploadUrl = defineOperation({
  operationId: 'createUploadUrl',
  method: 'POST',
  path: '/v2/deployments/:deployment_id/upload-url',
  summary: 'Create a link for the upload of a source',
  description:
    'PUT the tarball (tar, usually compressed with gzip) to `upload_url` within an hour; no key is needed. Then PATCH the deployment with ' +
    '`source_revision_config.source_tarball_path` set to `object_path`.',
  access: writeAccess,
  errors: ['NOT_FOUND', 'UPLOADS_LIMITED'],
  schema: {
    params: DeploymentParams,
    response: { 200: Type.Object({ upload_url: Type.String(), object_path: Type.String() }) },
  },
  handler: async ({ caller, params, services, request }) => {
    const { objectPath, token } = await createUpload(services, caller.workspaceId, params.deployment_id);
    return {
      upload_url: buildPublicUrl(`/v2/source-uploads/${token}`, request, services.config),
      object_path: objectPath,
    };
  },
});

const putSource = defineOperation({
  operationId: 'putSource',
  method: 'PUT',
  path: '/v2/source-uploads/:token',
  summary: 'Upload a source to its link',
  description: 'A link works once. A second request that begins before the first is received ends the first.',
  access: { public: true, tenantScope: 'none' },
  errors: ['UPLOAD_LINK_INVALID', 'SOURCE_TOO_LARGE', 'SOURCE_NOT_STORED'],
  rawBody: {
    contentTypes: ['application/gzip', 'application/octet-stream'],
    description: 'A tar archive, compressed with gzip or not; at most RUNLAKE_DEPLOYMENTS_MAX_SOURCE_BYTES.',
  },
  schema: {
    params: Type.Object({ token: Type.String({ minLength: 1, maxLength: 1_024 }) }),
    response: { 200: Type.Object({}) },
  },
  handler: async ({ params, services, request }) => {
    removeRequestTimeLimit(request.raw);
    await receiveUpload(services, params.token, request.raw);
    return new RawResponse({ body: {} });
  },
});

export const uploadOperations = [createUploadUrl, putSource];
