import { randomUUID } from 'node:crypto';
import type { Config } from '../../infra/config/settings.ts';
import type { Database, Sql } from '../../infra/postgres/pool.ts';
import { generateKey, hashKey, shortKey } from './key-format.ts';
import { EVERYTHING } from './permissions.ts';
import { maxHandleLength } from './workspace-record.ts';

export type BootstrapOutcome =
  /** First start: organisation, workspace, user and this admin key were made. `chosen`: the key comes from the setting. */
  | { readonly kind: 'created'; readonly key: string; readonly chosen: boolean }
  /** RUNLAKE_BOOTSTRAP_API_KEY named a key that did not exist: it is now one more admin key of the first organisation. */
  | { readonly kind: 'key-added' }
  /** Nothing was to do. */
  | { readonly kind: 'present' }
  /** RUNLAKE_BOOTSTRAP_API_KEY names a key that was revoked. It stays revoked: give another one. */
  | { readonly kind: 'key-revoked' };

type BootstrapSettings = Pick<
  Config,
  'bootstrapApiKey' | 'bootstrapOrganization' | 'bootstrapWorkspace' | 'bootstrapEmail'
>;

/**
 * Makes what the first start needs, once, however many processes start at the same moment.
 *
 * Invariant: there is never more than one first organisation. Steps, in one transaction: 1. take the advisory lock, which lasts
 * until the commit; 2. look for an organisation; 3. make what is missing. Whoever waits at 1 finds the work done at 2.
 */
export function bootstrap(database: Database, settings: BootstrapSettings): Promise<BootstrapOutcome> {
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
      await addKey(tx, key, await createOrganization(tx, settings));
      return { kind: 'created', key, chosen: chosen !== undefined };
    }
    if (chosen === undefined) return { kind: 'present' };
    const [known] = await tx.query<{ revoked: boolean }>(
      'SELECT revoked_at IS NOT NULL AS revoked FROM api_keys WHERE hash = $1',
      [hashKey(chosen)],
    );
    if (known) return { kind: known.revoked ? 'key-revoked' : 'present' };
    await addKey(tx, chosen, {
      organizationId: first.organization_id,
      workspaceId: first.workspace_id,
      userId: first.user_id,
    });
    return { kind: 'key-added' };
  });
}

interface Owner {
  readonly organizationId: string;
  readonly workspaceId: string | null;
  readonly userId: string;
}

async function createOrganization(tx: Sql, settings: BootstrapSettings): Promise<Owner> {
  const owner = { organizationId: randomUUID(), workspaceId: randomUUID(), userId: randomUUID() };
  await tx.execute('INSERT INTO organizations (id, display_name) VALUES ($1, $2)', [
    owner.organizationId,
    settings.bootstrapOrganization,
  ]);
  await tx.execute(
    'INSERT INTO workspaces (id, organization_id, display_name, tenant_handle) VALUES ($1, $2, $3, $4)',
    [owner.workspaceId, owner.organizationId, settings.bootstrapWorkspace, handleFrom(settings.bootstrapWorkspace)],
  );
  await tx.execute('INSERT INTO users (id, organization_id, email) VALUES ($1, $2, $3)', [
    owner.userId,
    owner.organizationId,
    settings.bootstrapEmail,
  ]);
  return owner;
}

/** A handle made of a workspace's name: its letters without accents, digits and dashes. Clients need one for prompts. */
function handleFrom(displayName: string): string {
  const plain = displayName.normalize('NFKD').replace(/\p{M}/gu, '').toLowerCase();
  const handle = plain
    .replace(/[^a-z0-9_]+/g, '-')
    .replace(/^[-_]+/, '')
    .slice(0, maxHandleLength);
  return handle.replace(/-+$/, '') || 'default';
}

/** An admin key for the whole organisation; the first workspace is meant where a request names none. */
async function addKey(tx: Sql, key: string, owner: Owner): Promise<void> {
  await tx.execute(
    `INSERT INTO api_keys
       (id, organization_id, workspace_ids, default_workspace_id, user_id, hash, short_key, description, permissions)
     VALUES ($1, $2, NULL, $3, $4, $5, $6, 'Bootstrap admin key', $7)`,
    [randomUUID(), owner.organizationId, owner.workspaceId, owner.userId, hashKey(key), shortKey(key), [EVERYTHING]],
  );
}
