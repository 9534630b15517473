import { Type } from 'typebox';
import { createMember as create } from '../../../pipelines/tenants/create-member.ts';
import { optional, Text } from '../../server/formats.ts';
import { defineOperation } from '../../server/operation.ts';
import { Member, showMember } from './member-schema.ts';

export const createMember = defineOperation({
  operationId: 'createMember',
  method: 'POST',
  path: '/orgs/current/members',
  tag: 'organization',
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
    showMember(
      await create(services.database, caller, { email: body.email, fullName: body.full_name }, services.config),
    ),
});
