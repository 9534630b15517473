import { Type } from 'typebox';
import type { MemberRecord } from '../../../pipelines/tenants/list-members.ts';
import { nullable, Timestamp, Uuid } from '../../server/formats.ts';

export const Member = Type.Object({
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

/** A user belongs to one organisation, so member id and user id are equal. The permissions are those of the user's keys. */
export function showMember(member: MemberRecord) {
  return {
    ...member,
    user_id: member.id,
    ls_user_id: member.id,
    read_only: false,
    access_scope: 'organization' as const,
    display_name: member.full_name,
  };
}
