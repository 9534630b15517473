import { Type } from 'typebox';
import type { Caller } from '../../pipelines/tenants/caller.ts';
import {
  createOrganization as create,
  type ListedOrganization,
  listOrganizations as list,
  type OrganizationRecord,
  readOrganization,
  deleteOrganization as remove,
} from '../../pipelines/tenants/organizations.ts';
import { permissions } from '../../pipelines/tenants/permissions.ts';
import { nullable, OneOf, optional, Text, Timestamp, Uuid } from '../server/formats.ts';
import { defineOperation } from '../server/operation.ts';
import { DisplayName, Handle } from './workspaces.ts';

const Config = Type.Object(
  {
    plan_tier: Type.Null(),
    max_identities: Type.Integer(),
    max_workspaces: Type.Integer(),
    can_use_rbac: Type.Boolean(),
    can_use_bulk_export: Type.Boolean(),
    can_use_langgraph_cloud: Type.Boolean(),
    enable_granular_usage_reporting: Type.Boolean(),
  },
  { description: 'Capabilities and limits. -1: no limit.' },
);

const shared = {
  id: Uuid(),
  display_name: Type.String(),
  config: Config,
  is_personal: Type.Boolean(),
  tier: Type.Null(),
  reached_max_workspaces: Type.Boolean(),
  permissions: Type.Array(Type.String(), { description: 'Permissions of the key of the request.' }),
};

/**
 * The fields that clients read. The original API has fields about payment and login; their values are constant here.
 */
const OrganizationInfo = Type.Object({ ...shared, disabled: Type.Boolean() });

const Organization = Type.Object({
  ...shared,
  connected_to_stripe: Type.Boolean(),
  connected_to_metronome: Type.Boolean(),
  payment_method: Type.Null(),
  has_cancelled: Type.Boolean(),
  end_of_billing_period: Type.Null(),
  current_plan: Type.Null(),
  upcoming_plan: Type.Null(),
});

/** An organisation as an element of a list. */
const OrganizationItem = Type.Object({
  id: Uuid(),
  display_name: Type.String(),
  tier: Type.Null(),
  created_at: Timestamp(),
  is_personal: Type.Boolean(),
  disabled: Type.Boolean({ description: 'True if the organization is deleted.' }),
  deletion: nullable(
    Type.Object({
      deleted_at: Timestamp(),
      workspaces: Type.Integer(),
      purged_workspaces: Type.Integer({ description: 'Number of workspaces whose data is deleted.' }),
    }),
    { description: 'Null if the organization is not deleted.' },
  ),
});

function formatItem({ id, display_name, created_at, deleted_at, workspaces, purged_workspaces }: ListedOrganization) {
  return {
    ...{ id, display_name, created_at, tier: null, is_personal: false, disabled: deleted_at !== null },
    deletion: deleted_at === null ? null : { deleted_at, workspaces, purged_workspaces },
  };
}

/** Formats an organisation for the caller. The result has the fields that both schemas share. */
function formatOrganization({ id, display_name }: OrganizationRecord, caller: Caller) {
  return {
    id,
    display_name,
    config: {
      plan_tier: null,
      max_identities: -1,
      max_workspaces: -1,
      can_use_rbac: false,
      can_use_bulk_export: true,
      can_use_langgraph_cloud: true,
      enable_granular_usage_reporting: true,
    },
    is_personal: false,
    tier: null,
    reached_max_workspaces: false,
    permissions: [...caller.permissions],
  };
}

const CreatedOrganization = Type.Object({
  ...OrganizationItem.properties,
  workspace: Type.Object({ id: Uuid(), display_name: Type.String(), tenant_handle: Type.String() }),
  admin: Type.Object({ id: Uuid(), email: Type.String() }),
  api_key: Type.Object({
    id: Uuid(),
    key: Type.String({ description: 'Admin key of the whole organization. It is never returned again.' }),
  }),
});

const createOrganization = defineOperation({
  operationId: 'createOrganization',
  method: 'POST',
  path: '/orgs',
  summary: 'Create an organization',
  description:
    'Also creates its first workspace, its first user and an admin key, which is returned only once. Only for keys of the first ' +
    'organization, which belongs to the operator.',
  access: { permission: 'organizations:manage', tenantScope: 'organization' },
  unsupported: { body: ['is_personal', 'security_contact'], flags: ['is_personal'] },
  errors: ['OPERATOR_ONLY', 'CONFLICT', 'ORGANIZATION_LIMIT_REACHED'],
  schema: {
    body: Type.Object({
      id: Type.Optional(Uuid()),
      display_name: DisplayName(),
      workspace_display_name: optional(Text({ minLength: 1, maxLength: 256 }), { description: 'Default: `Default`.' }),
      tenant_handle: Type.Optional(Handle()),
      admin_email: optional(Type.String({ format: 'email', maxLength: 320 }), {
        description: 'Default: the email of the caller.',
      }),
    }),
    response: { 200: CreatedOrganization },
  },
  handler: async ({ caller, body, services }) => {
    const created = await create(services, caller, {
      id: body.id?.toLowerCase(),
      displayName: body.display_name,
      workspaceName: body.workspace_display_name ?? undefined,
      handle: body.tenant_handle,
      adminEmail: body.admin_email ?? undefined,
    });
    return {
      ...formatItem({
        ...{ id: created.organizationId, display_name: body.display_name, created_at: created.createdAt },
        ...{ deleted_at: null, workspaces: 1, purged_workspaces: 0 },
      }),
      workspace: { id: created.workspaceId, display_name: created.workspaceName, tenant_handle: created.tenantHandle },
      admin: { id: created.userId, email: created.adminEmail },
      api_key: { id: created.keyId, key: created.key },
    };
  },
});

const deleteOrganization = defineOperation({
  operationId: 'deleteOrganization',
  method: 'DELETE',
  path: '/orgs/:organization_id',
  summary: 'Delete an organization',
  description:
    'Its keys, streams and links stop working, on other processes within two seconds, and jobs delete the data of its workspaces as ' +
    'when a workspace is deleted. `deletion` in the response, and in `GET /orgs?include_deleted=true`, shows the progress. The request ' +
    'is idempotent. Only for keys of the first organization, which belongs to the operator and cannot be deleted.',
  access: { permission: 'organizations:manage', tenantScope: 'organization' },
  errors: ['OPERATOR_ONLY', 'NOT_FOUND', 'CONFLICT'],
  schema: { params: Type.Object({ organization_id: Uuid() }), response: { 200: OrganizationItem } },
  handler: async ({ caller, params, services }) => formatItem(await remove(services, caller, params.organization_id)),
});

const getCurrentOrganization = defineOperation({
  operationId: 'getCurrentOrganization',
  method: 'GET',
  path: '/orgs/current',
  summary: 'Get the organization of the key',
  access: { permission: 'organization:read', tenantScope: 'organization' },
  schema: { response: { 200: Organization } },
  handler: async ({ caller, services }) => ({
    ...formatOrganization(await readOrganization(services.database, caller), caller),
    connected_to_stripe: false,
    connected_to_metronome: false,
    payment_method: null,
    has_cancelled: false,
    end_of_billing_period: null,
    current_plan: null,
    upcoming_plan: null,
  }),
});

const getOrganizationInfo = defineOperation({
  operationId: 'getOrganizationInfo',
  method: 'GET',
  path: '/orgs/current/info',
  summary: 'Get the organization of the key, without payment fields',
  access: { permission: 'organization:read', tenantScope: 'organization' },
  schema: { response: { 200: OrganizationInfo } },
  handler: async ({ caller, services }) => ({
    ...formatOrganization(await readOrganization(services.database, caller), caller),
    disabled: false,
  }),
});

const listOrganizations = defineOperation({
  operationId: 'listOrganizations',
  method: 'GET',
  path: '/orgs',
  summary: 'List the organizations that the key has access to',
  description:
    'Only the organization of the key. A key of the first organization, which belongs to the operator, with the permission `organizations:manage` lists all organizations.',
  access: { permission: 'organization:read', tenantScope: 'organization' },
  schema: {
    query: Type.Object({ include_deleted: Type.Boolean({ default: false }) }),
    response: { 200: Type.Array(OrganizationItem) },
  },
  handler: async ({ caller, query, services }) =>
    (await list(services.database, caller, { includeDeleted: query.include_deleted })).map(formatItem),
});

const PermissionItem = Type.Object({
  name: Type.String(),
  description: Type.String(),
  access_scope: OneOf(['organization', 'workspace']),
});

const listPermissions = defineOperation({
  operationId: 'listPermissions',
  method: 'GET',
  path: '/orgs/permissions',
  summary: 'List all permissions that a key can have',
  access: { permission: 'organization:read', tenantScope: 'organization' },
  schema: { response: { 200: Type.Array(PermissionItem) } },
  handler: async () => permissions.map(({ name, about, scope }) => ({ name, description: about, access_scope: scope })),
});

export const organizationOperations = [
  listOrganizations,
  createOrganization,
  deleteOrganization,
  getCurrentOrganization,
  getOrganizationInfo,
  listPermissions,
];
