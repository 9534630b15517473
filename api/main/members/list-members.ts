import { Type } from 'typebox';
import { listMembers as list } from '../../../pipelines/tenants/list-members.ts';
import { Uuid } from '../../server/formats.ts';
import { defineOperation } from '../../server/operation.ts';
import { Member, showMember } from './member-schema.ts';

export const listMembers = defineOperation({
  operationId: 'listMembers',
  method: 'GET',
  path: '/orgs/current/members',
  tag: 'organization',
  summary: 'List the users of the organization',
  access: { permission: 'organization:read', tenantScope: 'organization' },
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
    members: (await list(services.database, caller)).map(showMember),
    pending: [],
  }),
});
