import { randomUUID } from 'node:crypto';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import type { Caller } from './caller.ts';
import type { MemberRecord } from './list-members.ts';
import { requireMemberQuota, type TenantLimits } from './require-member-quota.ts';

/** @throws CONFLICT if the organisation has a user with that email, ignoring case; LIMIT_REACHED. */
export async function createMember(
  database: Database,
  caller: Caller,
  { email, fullName }: { email: string; fullName?: string | null | undefined },
  limits: Pick<TenantLimits, 'maxMembers'>,
): Promise<MemberRecord> {
  return database.transaction(async (tx) => {
    const [member] = await tx.query<MemberRecord>(
      `INSERT INTO users (id, organization_id, email, full_name) VALUES ($1, $2, $3, $4)
     ON CONFLICT (organization_id, lower(email)) WHERE removed_at IS NULL DO NOTHING
     RETURNING id, organization_id, created_at, email, full_name`,
      [randomUUID(), caller.organizationId, email, fullName ?? null],
    );
    if (!member) throw runlakeError('CONFLICT', { reason: 'A member with this email already exists.' });
    await requireMemberQuota(tx, caller, limits);
    return member;
  });
}
