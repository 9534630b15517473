import { Type } from 'typebox';
import { checkSteps, recheckDestination } from '../../pipelines/exports/destinations/check-destination.ts';
import {
  type DestinationRecord,
  listDestinations as list,
  readDestination,
} from '../../pipelines/exports/destinations/destination.ts';
import {
  createDestination as create,
  deleteDestination as remove,
  updateDestination as update,
} from '../../pipelines/exports/destinations/write-destination.ts';
import { JsonObject, nullable, OneOf, optional, Text, Timestamp, Uuid } from '../server/formats.ts';
import { defineOperation } from '../server/operation.ts';

const DestinationParams = Type.Object({ destination_id: Uuid() });

const DisplayName = Type.String({ minLength: 1, maxLength: 255, pattern: "^[A-Za-z0-9\\-_ ']+$" });

/**
 * Returns the schema of a credential. Credentials are sent in HTTP headers and must therefore not contain spaces or
 * control characters.
 */
const SecretText = (maxLength: number) => Type.String({ minLength: 1, maxLength, pattern: '^[\\x21-\\x7e]+$' });

const Credentials = Type.Object({
  access_key_id: SecretText(255),
  secret_access_key: SecretText(2_048),
  session_token: optional(SecretText(2_048), { description: 'Session token of temporary credentials.' }),
});

const NewConfig = Type.Object({
  bucket_name: optional(Type.String({ minLength: 3, maxLength: 63 })),
  prefix: optional(Text({ maxLength: 1_024 }), {
    description: 'Prefix of all object keys; `/` separates folders.',
  }),
  region: optional(Type.String({ minLength: 1, maxLength: 63 }), { description: 'AWS region. Default: us-east-1.' }),
  endpoint_url: optional(Text({ minLength: 1, maxLength: 2_048 }), {
    description: 'Endpoint of an S3-compatible store. Omit it for AWS.',
  }),
  include_bucket_in_prefix: optional(Type.Boolean(), {
    description:
      'Default: true. If false, `endpoint_url` is the URL of the bucket itself, and reported paths do not contain the bucket.',
  }),
  config_kwargs_s3: optional(
    Type.Object(
      {
        addressing_style: optional(OneOf(['virtual', 'path', 'auto']), {
          description: 'Default: auto, which is path style with `endpoint_url` and virtual-host style with AWS.',
        }),
      },
      { additionalProperties: true, description: 'Other settings are not supported yet and refused.' },
    ),
  ),
  s3_additional_kwargs: optional(JsonObject(), { description: 'Not supported. Must be null or empty.' }),
  aws_role_arn: optional(Type.String({ maxLength: 2_048 }), { description: 'Not supported. Must be null or empty.' }),
});

export const NewDestination = Type.Object({
  destination_type: optional(OneOf(['s3', 'local']), {
    default: 's3',
    description: '`local` is the folder `config.prefix` below the root that the operator configured.',
  }),
  display_name: DisplayName,
  config: NewConfig,
  credentials: optional(Credentials, {
    description: 'Default: the default AWS credentials of the server, if the operator allows them.',
  }),
});

const DestinationChange = Type.Object({
  display_name: optional(DisplayName),
  credentials: optional(Credentials, { description: 'Tested before they replace the current credentials.' }),
});

/** A destination in a response, without its credentials. */
const Destination = Type.Object({
  id: Uuid(),
  tenant_id: Uuid({ description: 'Id of the workspace.' }),
  destination_type: Type.String(),
  display_name: Type.String(),
  config: Type.Object({
    bucket_name: nullable(Type.String()),
    prefix: Type.String(),
    region: nullable(Type.String()),
    endpoint_url: nullable(Type.String()),
    include_bucket_in_prefix: Type.Boolean(),
    config_kwargs_s3: nullable(Type.Object({ addressing_style: Type.String() })),
    s3_additional_kwargs: Type.Null(),
    aws_role_arn: Type.Null(),
  }),
  credentials_keys: Type.Array(Type.String(), {
    description: 'Names of the stored credentials. Their values are never returned.',
  }),
  created_at: Timestamp(),
  updated_at: Timestamp(),
});

export function formatDestination({ config, credentials_keys, ...record }: DestinationRecord) {
  return {
    ...record,
    config: { ...config, s3_additional_kwargs: null, aws_role_arn: null },
    credentials_keys: [...credentials_keys],
  };
}

/** Errors of the checks that are applied to a new destination and to new credentials. */
const checkErrors = [
  'BAD_REQUEST',
  'PARAMETER_NOT_SUPPORTED',
  'DESTINATION_ACCESS_DENIED',
  'DESTINATION_BUCKET_NOT_VALID',
  'DESTINATION_CREDENTIALS_REQUIRED',
  'DESTINATION_ENDPOINT_INVALID',
  'DESTINATION_ENDPOINT_NOT_ALLOWED',
  'DESTINATION_KEY_UNKNOWN',
  'DESTINATION_OBJECT_DAMAGED',
  'DESTINATION_TYPE_OFF',
  'DESTINATION_UNAVAILABLE',
  'OVERLOADED',
] as const;

const createDestination = defineOperation({
  operationId: 'createBulkExportDestination',
  method: 'POST',
  path: '/bulk-exports/destinations',
  summary: 'Create a destination for bulk exports',
  description:
    'The server writes a small object below `tmp/` in the prefix. It also reads and deletes the object if it has the permissions. If a step fails, the error names it and no destination is created.',
  access: { permission: 'bulk-exports:manage', tenantScope: 'workspace' },
  errors: [...checkErrors, 'LIMIT_REACHED'],
  schema: { body: NewDestination, response: { 200: Destination } },
  handler: async ({ caller, body, services }) => {
    const destination = {
      type: body.destination_type ?? 's3',
      displayName: body.display_name,
      config: body.config,
      credentials: body.credentials,
    };
    return formatDestination(await create(services.destinations, caller.workspaceId, destination));
  },
});

const deleteDestination = defineOperation({
  operationId: 'deleteBulkExportDestination',
  method: 'DELETE',
  path: '/bulk-exports/destinations/:destination_id',
  summary: 'Delete a destination with its credentials',
  description: 'Exported files stay in the bucket.',
  access: { permission: 'bulk-exports:manage', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', 'DESTINATION_IN_USE'],
  schema: { params: DestinationParams, response: { 200: Type.Object({ message: Type.String() }) } },
  handler: async ({ caller, params, services }) => {
    await remove(services.database, caller.workspaceId, params.destination_id);
    return { message: 'Bulk export destination deleted' };
  },
});

const getDestination = defineOperation({
  operationId: 'getBulkExportDestination',
  method: 'GET',
  path: '/bulk-exports/destinations/:destination_id',
  summary: 'Get a destination',
  access: { permission: 'bulk-exports:read', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: { params: DestinationParams, response: { 200: Destination } },
  handler: async ({ caller, params, services }) =>
    formatDestination(await readDestination(services.database, caller.workspaceId, params.destination_id)),
});

const listDestinations = defineOperation({
  operationId: 'listBulkExportDestinations',
  method: 'GET',
  path: '/bulk-exports/destinations',
  summary: 'List the destinations of the workspace, oldest first',
  access: { permission: 'bulk-exports:read', tenantScope: 'workspace' },
  schema: {
    query: Type.Object({
      limit: Type.Integer({ minimum: 1, maximum: 1_000, default: 100 }),
      offset: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, default: 0 }),
    }),
    response: { 200: Type.Array(Destination) },
  },
  handler: async ({ caller, query, services }) =>
    (await list(services.database, caller.workspaceId, query)).map(formatDestination),
});

const updateDestination = defineOperation({
  operationId: 'updateBulkExportDestination',
  method: 'PATCH',
  path: '/bulk-exports/destinations/:destination_id',
  summary: 'Rename a destination, or replace its credentials',
  description:
    'Absent and null fields stay unchanged. New credentials are tested as at creation; if the test fails, the old ones stay. Bucket and prefix cannot be changed; create another destination instead.',
  access: { permission: 'bulk-exports:manage', tenantScope: 'workspace' },
  unsupported: { body: ['config', 'destination_type'] },
  errors: [...checkErrors, 'NOT_FOUND'],
  schema: { params: DestinationParams, body: DestinationChange, response: { 200: Destination } },
  handler: async ({ caller, params, body, services }) => {
    const change = { displayName: body.display_name, credentials: body.credentials };
    const { destinations } = services;
    return formatDestination(await update(destinations, caller.workspaceId, params.destination_id, change));
  },
});

const Check = Type.Object({
  step: OneOf(checkSteps),
  outcome: OneOf(['passed', 'forbidden', 'failed', 'not_run'], {
    description: '`forbidden`: the permission is missing, but exports do not need it.',
  }),
  message: nullable(Type.String({ description: 'Why the step failed.' })),
  remedy: nullable(Type.String()),
});

const checkDestination = defineOperation({
  operationId: 'checkBulkExportDestination',
  method: 'POST',
  path: '/bulk-exports/destinations/:destination_id/check',
  summary: 'Check a destination with its stored credentials',
  description:
    'The server connects to the store, and writes, reads and deletes a small object below `tmp/` in the prefix. Responds with 200 also if a step failed.',
  access: { permission: 'bulk-exports:manage', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', 'DESTINATION_CREDENTIALS_REQUIRED', 'DESTINATION_TYPE_OFF', 'OVERLOADED'],
  schema: { params: DestinationParams, response: { 200: Type.Object({ checks: Type.Array(Check) }) } },
  handler: async ({ caller, params, services }) => {
    const checks = await recheckDestination(services.destinations, caller.workspaceId, params.destination_id);
    return {
      checks: checks.map(({ step, outcome, error }) => ({
        ...{ step, outcome },
        message: error?.message ?? null,
        remedy: error?.remedy ?? null,
      })),
    };
  },
});

export const exportDestinationOperations = [
  createDestination,
  listDestinations,
  getDestination,
  updateDestination,
  checkDestination,
  deleteDestination,
];
