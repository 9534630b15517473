import { Type } from 'typebox';
import { readDiskFreePercent } from '../../infra/clickhouse/server-queries.ts';
import { readWorkspace, updateWorkspace } from '../../pipelines/tenants/workspaces.ts';
import { JsonObject, nullable, Timestamp, Uuid } from '../server/formats.ts';
import { defineOperation } from '../server/operation.ts';
import { clickhouseErrors } from '../server/operation-errors.ts';
import { Handle } from './workspaces.ts';

const getInfoHealth = defineOperation({
  operationId: 'getInfoHealth',
  method: 'GET',
  path: '/info/health',
  summary: 'Get the free disk space of ClickHouse',
  access: { public: true, tenantScope: 'none' },
  errors: clickhouseErrors,
  schema: { response: { 200: Type.Object({ clickhouse_disk_free_pct: Type.Number() }) } },
  handler: async ({ services }) => ({ clickhouse_disk_free_pct: await readDiskFreePercent(services.clickhouse) }),
});

const Info = Type.Object({
  version: Type.String({ description: 'Release of the original API that this server is compatible with.' }),
  git_sha: nullable(Type.String()),
  license_expiration_time: nullable(Timestamp()),
  batch_ingest_config: Type.Object({
    use_multipart_endpoint: Type.Boolean(),
    scale_up_qsize_trigger: Type.Integer(),
    scale_up_nthreads_limit: Type.Integer(),
    scale_down_nempty_trigger: Type.Integer(),
    size_limit: Type.Integer({ description: 'Maximum number of runs that clients should send in a batch.' }),
    size_limit_bytes: Type.Integer({ description: 'Maximum number of bytes that clients should send in a batch.' }),
  }),
  instance_flags: JsonObject({ description: 'Feature flags for clients.' }),
  customer_info: Type.Null(),
});

/**
 * Version that clients read. Clients warn if it is below 0.18.0, and send feedback in multipart bodies if it is at
 * least 0.8.10.
 */
const COMPATIBLE_VERSION = '0.18.0';

const flags = {
  // The multipart route accepts both gzip and zstd.
  gzip_body_enabled: true,
  zstd_compression_enabled: true,
  dataset_examples_multipart_enabled: true,
  examples_multipart_enabled: true,
  // Runs can be read with both versions of the API.
  ch_query_enabled: true,
  sdb_query_enabled: true,
};

const getInfo = defineOperation({
  operationId: 'getInfo',
  method: 'GET',
  path: '/info',
  summary: 'Get the capabilities of the server, which clients read first',
  access: { public: true, tenantScope: 'none' },
  schema: { response: { 200: Info } },
  handler: async ({ services: { config, oidc } }) => ({
    version: COMPATIBLE_VERSION,
    git_sha: null,
    license_expiration_time: null,
    batch_ingest_config: {
      use_multipart_endpoint: true,
      scale_up_qsize_trigger: 1000,
      scale_up_nthreads_limit: 16,
      scale_down_nempty_trigger: 4,
      // Clients send a run in up to nine parts: one for the run itself, and one for each of its large fields.
      size_limit: Math.max(1, Math.min(100, Math.floor(config.maxParts / 9))),
      size_limit_bytes: Math.min(20 * 1024 * 1024, config.maxBodyBytes),
    },
    // `openid_connect` is for the sign-in page of the web application.
    instance_flags: { ...flags, openid_connect: oidc !== undefined },
    customer_info: null,
  }),
});

const Settings = Type.Object({
  id: Uuid(),
  display_name: Type.String(),
  created_at: Timestamp(),
  tenant_handle: nullable(Type.String()),
});

const getSettings = defineOperation({
  operationId: 'getSettings',
  method: 'GET',
  path: '/settings',
  summary: 'Get the workspace of the request',
  access: { permission: 'workspaces:read', tenantScope: 'workspace' },
  schema: { response: { 200: Settings } },
  handler: async ({ caller, services }) => readWorkspace(services.database, caller, caller.workspaceId),
});

const setHandle = defineOperation({
  operationId: 'setHandle',
  method: 'POST',
  path: '/settings/handle',
  summary: 'Set the handle of the workspace of the request',
  description: 'Public prompts are found by it: `handle/prompt`. Same as `PATCH /workspaces/{workspace_id}`.',
  access: { permission: 'workspaces:manage', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', 'CONFLICT'],
  schema: { body: Type.Object({ tenant_handle: Handle() }), response: { 200: Settings } },
  handler: async ({ caller, body, services }) =>
    updateWorkspace(services.database, caller, caller.workspaceId, { handle: body.tenant_handle }),
});

export const infoOperations = [getInfo, getInfoHealth, getSettings, setHandle];
