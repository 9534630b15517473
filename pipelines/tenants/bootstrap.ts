import { randomUUID } from 'node:crypto';
import type { Config } from '../../infra/config/settings.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { generateKey, hashKey } from './key-format.ts';
import { deriveHandle, insertAdminKey, insertOrganization } from './organizations.ts';

export type BootstrapOutcome =
  /**
   * First start: an organisation, a workspace, a user and this admin key were created. `chosen` is true if the key
   * comes from the setting.
   */
  | { readonly kind: 'created'; readonly key: string; readonly chosen: boolean }
  /** RUNLAKE_BOOTSTRAP_API_KEY contained a new key, which is now a further admin key of the first organisation. */
  | { readonly kind: 'key-added' }
  /** Everything already existed. */
  | { readonly kind: 'present' }
  /** RUNLAKE_BOOTSTRAP_API_KEY contains a revoked key. The key stays revoked; set another key. */
  | { readonly kind: 'key-revoked' };

/**
 * Names of the objects that the first start creates. The workspace can be renamed; the email address only identifies
 * the first user.
 */
const defaultName = 'Default';
const firstUserEmail = 'admin@runlake.local';

const keyDescription = 'Bootstrap admin key';

/**
 * Creates the objects that the first start needs, exactly once, regardless of how many processes start concurrently.
 *
 * Invariant: there is at most one first organisation. Steps, in one transaction:
 *   1. Take the advisory lock, which is held until the commit.
 *   2. Read the first organisation. A process that waited in step 1 finds the organisation that another process
 *      created.
 *   3. Create the objects that are missing.
 */
export function bootstrap(database: Database, settings: Pick<Config, 'bootstrapApiKey'>): Promise<BootstrapOutcome> {
  return database.transaction(async (tx) => {
    await tx.query("SELECT pg_advisory_xact_lock(hashtext('runlake bootstrap'))");
    const [first] = await tx.query<{ organization_id: string; workspace_id: string | null; user_id: string }>(
      `SELECT o.id AS organization_id,
         (SELECT id FROM workspaces WHERE organization_id = o.id AND deleted_at IS NULL ORDER BY created_at, id LIMIT 1)
           AS workspace_id,
         (SELECT id FROM users WHERE organization_id = o.id AND removed_at IS NULL ORDER BY created_at, id LIMIT 1) AS user_id
       FROM organizations o ORDER BY o.created_at, o.id LIMIT 1`,
    );
    const chosen = settings.bootstrapApiKey;
    if (first === undefined) {
      const key = chosen ?? generateKey();
      const tenantHandle = deriveHandle(defaultName);
      const names = { displayName: defaultName, workspaceName: defaultName, tenantHandle, email: firstUserEmail };
      await insertOrganization(tx, { ...names, organizationId: randomUUID(), key, keyDescription });
      return { kind: 'created', key, chosen: chosen !== undefined };
    }
    if (chosen === undefined) return { kind: 'present' };
    const [known] = await tx.query<{ revoked: boolean }>(
      'SELECT revoked_at IS NOT NULL AS revoked FROM api_keys WHERE hash = $1',
      [hashKey(chosen)],
    );
    if (known) return { kind: known.revoked ? 'key-revoked' : 'present' };
    const { organization_id: organizationId, workspace_id: workspaceId, user_id: userId } = first;
    await insertAdminKey(tx, chosen, { organizationId, workspaceId, userId }, keyDescription);
    return { kind: 'key-added' };
  });
}
