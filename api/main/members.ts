import { Type } from 'typebox';
import {
  createMember as create,
  listMembers as list,
  type MemberRecord,
  removeMember,
} from '../../pipelines/tenants/members.ts';
import { nullable, optional, Text, Timestamp, Uuid } from '../server/formats.ts';
import { defineOperation } from '../server/operation.ts';

const Member = Type.Object({
  id: Uuid(),
  organization_id: Uuid(),
  created_at: Timestamp(),
  user_id: Uuid(),
  ls_user_id: Uuid(),
  read_only: Type.Boolean(),
  access_scope: Type.Literal('organization'),
  email: Type.String(),
  full_name: nullable(Type.String()),
  display_name: nullable(Type.String()),
});

/**
 * Formats a member. A user belongs to exactly one organisation, so the member id is the user id. The permissions are
 * the permissions of the user's keys.
 */
function formatMember(member: MemberRecord) {
  return {
    ...member,
    user_id: member.id,
    ls_user_id: member.id,
    read_only: false,
    access_scope: 'organization' as const,
    display_name: member.full_name,
  };
}

const createMember = defineOperation({
  operationId: 'createMember',
  method: 'POST',
  path: '/orgs/current/members',
  summary: 'Add a user to the organization',
  description: 'The user is a member immediately. Create their keys with `user_email`.',
  access: { permission: 'organization:manage', tenantScope: 'organization' },
  unsupported: {
    body: ['read_only', 'role_id', 'workspace_ids', 'workspace_role_id', 'password'],
    flags: ['read_only'],
  },
  errors: ['CONFLICT', 'LIMIT_REACHED'],
  schema: {
    body: Type.Object({
      email: Type.String({ format: 'email', maxLength: 320 }),
      full_name: optional(Text({ maxLength: 256 })),
    }),
    response: { 200: Member },
  },
  handler: async ({ caller, body, services }) =>
    formatMember(
      await create(services.database, caller, { email: body.email, fullName: body.full_name }, services.config),
    ),
});

const deleteMember = defineOperation({
  operationId: 'deleteMember',
  method: 'DELETE',
  path: '/orgs/current/members/:user_id',
  summary: 'Remove a user from the organization',
  description:
    'Revokes the keys of the user, on other processes within two seconds. Usage and feedback stay attributed to the user. A key can ' +
    'remove a user only if it has all permissions of the keys of that user. The last user with a key that manages the organization stays.',
  access: { permission: 'organization:manage', tenantScope: 'organization' },
  errors: ['NOT_FOUND', 'CONFLICT'],
  schema: {
    params: Type.Object({ user_id: Uuid() }),
    response: { 200: Type.Object({ message: Type.String() }) },
  },
  handler: async ({ caller, params, services }) => {
    await removeMember(services, caller, params.user_id);
    return { message: 'Member removed' };
  },
});

const listMembers = defineOperation({
  operationId: 'listMembers',
  method: 'GET',
  path: '/orgs/current/members',
  summary: 'List the users of the organization',
  access: { permission: 'organization:read', tenantScope: 'organization' },
  errors: ['ANSWER_TOO_LARGE'],
  schema: {
    response: {
      200: Type.Object({
        organization_id: Uuid(),
        members: Type.Array(Member),
        pending: Type.Array(Member, { description: 'Always empty: users become members immediately.' }),
      }),
    },
  },
  handler: async ({ caller, services }) => ({
    organization_id: caller.organizationId,
    members: (await list(services.database, caller)).map(formatMember),
    pending: [],
  }),
});

export const memberOperations = [listMembers, deleteMember, createMember];
