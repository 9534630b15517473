import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import { enforceLimit } from './enforce-limit.ts';

/** Limits of an organisation. */
export type TenantLimits = Pick<Config, 'maxApiKeys' | 'maxMembers'>;

/** Rolls back the transaction that inserted a user if the organisation is then above its limit. @throws LIMIT_REACHED */
export function requireMemberQuota(
  tx: Sql,
  owner: { readonly organizationId: string },
  { maxMembers }: Pick<TenantLimits, 'maxMembers'>,
): Promise<void> {
  const count = 'SELECT count(*) AS there FROM users WHERE organization_id = $1 AND removed_at IS NULL';
  return enforceLimit(tx, owner, { most: maxMembers, count }, () =>
    runlakeError('LIMIT_REACHED', {
      limit: maxMembers,
      what: 'users',
      instead: 'Create keys for existing users',
    }),
  );
}
