import { Type } from 'typebox';
import { removeMember } from '../../../pipelines/tenants/remove-member.ts';
import { Uuid } from '../../server/formats.ts';
import { defineOperation } from '../../server/operation.ts';

export const deleteMember = defineOperation({
  operationId: 'deleteMember',
  method: 'DELETE',
  path: '/orgs/current/members/:user_id',
  tag: 'organization',
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
