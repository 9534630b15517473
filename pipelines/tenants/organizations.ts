import { randomBytes, randomUUID } from 'node:crypto';
import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { getViolatedConstraint } from '../../infra/postgres/database-error.ts';
import type { Database, Sql } from '../../infra/postgres/pool.ts';
import type { Authenticator } from './authenticate.ts';
import type { Caller } from './caller.ts';
import { enforceLimit } from './enforce-limit.ts';
import { generateKey, hashKey, toShortKey } from './key-format.ts';
import { isOperator, requireOperator } from './operator.ts';
import { EVERYTHING } from './permissions.ts';
import { maxHandleLength, toWorkspaceConflict } from './workspaces.ts';

export interface OrganizationRecord {
  readonly id: string;
  readonly display_name: string;
  readonly created_at: string;
}

export interface ListedOrganization extends OrganizationRecord {
  /** Time of the deletion; null if the organisation is not deleted. */
  readonly deleted_at: string | null;
  readonly workspaces: number;
  /** For a deleted organisation, the number of workspaces whose data has been deleted. */
  readonly purged_workspaces: number;
}

export async function readOrganization(database: Database, caller: Caller): Promise<OrganizationRecord> {
  const [organization] = await database.query<OrganizationRecord>(
    'SELECT id, display_name, created_at FROM organizations WHERE id = $1',
    [caller.organizationId],
  );
  return organization!;
}

/** Select list of a {@link ListedOrganization} from `organizations o`. */
const listedColumns = `o.id, o.display_name, o.created_at, o.deleted_at,
  (SELECT count(*) FROM workspaces WHERE organization_id = o.id AND (deleted_at IS NULL OR o.deleted_at IS NOT NULL)) AS workspaces,
  (SELECT count(*) FROM workspaces WHERE organization_id = o.id AND o.deleted_at IS NOT NULL AND purged_at IS NOT NULL)
    AS purged_workspaces`;

/** Lists all organisations if the caller is the operator, otherwise only the caller's organisation; oldest first. */
export async function listOrganizations(
  database: Database,
  caller: Caller,
  { includeDeleted = false }: { readonly includeDeleted?: boolean } = {},
): Promise<ListedOrganization[]> {
  const seesAll = caller.permissions.has('organizations:manage') && (await isOperator(database, caller));
  return database.query<ListedOrganization>(
    `SELECT ${listedColumns} FROM organizations o
     WHERE ($1 OR o.id = $2) AND ($3 OR o.deleted_at IS NULL) ORDER BY o.created_at, o.id`,
    [seesAll, caller.organizationId, includeDeleted],
  );
}

interface NewOrganization {
  readonly id?: string | undefined;
  readonly displayName: string;
  /** Name of the first workspace. Default: `Default`. */
  readonly workspaceName?: string | undefined;
  /** Handle of the first workspace. Default: derived from the name of the organisation. */
  readonly handle?: string | null | undefined;
  /** Email of the first user, who has all permissions. Default: the email of the caller. */
  readonly adminEmail?: string | undefined;
}

/** Ids of an organisation and of its first workspace, user and key. */
interface OrganizationSeed {
  readonly organizationId: string;
  readonly workspaceId: string;
  readonly userId: string;
  readonly keyId: string;
}

interface CreatedOrganization extends OrganizationSeed {
  /** The admin key of the whole organisation. It is not shown again. */
  readonly key: string;
  readonly tenantHandle: string;
  readonly adminEmail: string;
  readonly workspaceName: string;
  readonly createdAt: string;
}

const countOrganizationsSql =
  'SELECT count(*) AS count FROM organizations WHERE deleted_at IS NULL AND $1::uuid IS NOT NULL';

/**
 * Creates an organisation for the operator, in one transaction: organisation, first workspace, first user and an admin
 * key.
 *
 * @throws FORBIDDEN, OPERATOR_ONLY, CONFLICT if the id or the handle is taken, LIMIT_REACHED.
 */
export async function createOrganization(
  { database, config }: { readonly database: Database; readonly config: Pick<Config, 'maxOrganizations'> },
  caller: Caller,
  newOrganization: NewOrganization,
): Promise<CreatedOrganization> {
  const { displayName, workspaceName = 'Default', adminEmail = caller.userEmail } = newOrganization;
  const key = generateKey();
  // Handles are unique in the installation; the random suffix prevents conflicts between default handles.
  const derived = `${deriveHandle(displayName).slice(0, maxHandleLength - 9)}-${randomBytes(4).toString('hex')}`;
  const tenantHandle = newOrganization.handle ?? derived;
  try {
    return await database.transaction(async (tx) => {
      await requireOperator(tx, caller);
      const seed = await insertOrganization(tx, {
        ...{ displayName, workspaceName, tenantHandle, email: adminEmail, key },
        ...{ organizationId: newOrganization.id ?? randomUUID(), keyDescription: 'First admin key' },
      });
      const limit = config.maxOrganizations;
      // All organisations are created by callers of the operator's organisation, so locking the row of that
      // organisation serialises the creations.
      await enforceLimit(tx, 'organization', caller.organizationId, {
        max: limit,
        countSql: countOrganizationsSql,
        createError: () => runlakeError('ORGANIZATION_LIMIT_REACHED', { limit }),
      });
      const [made] = await tx.query<{ created_at: string }>('SELECT created_at FROM organizations WHERE id = $1', [
        seed.organizationId,
      ]);
      return { ...seed, key, tenantHandle, adminEmail, workspaceName, createdAt: made!.created_at };
    });
  } catch (error) {
    if (getViolatedConstraint(error) === 'organizations_pkey') {
      throw runlakeError('CONFLICT', { reason: 'An organization with this id already exists.' });
    }
    throw toWorkspaceConflict(error) ?? error;
  }
}

/** Inserts an organisation, its first workspace, its first user and an admin key. */
export async function insertOrganization(
  tx: Sql,
  newOrganization: {
    readonly organizationId: string;
    readonly displayName: string;
    readonly workspaceName: string;
    readonly tenantHandle: string;
    readonly email: string;
    readonly key: string;
    readonly keyDescription: string;
  },
): Promise<OrganizationSeed> {
  const { organizationId, displayName, workspaceName, tenantHandle, email, key, keyDescription } = newOrganization;
  const owner = { organizationId, workspaceId: randomUUID(), userId: randomUUID() };
  await tx.execute('INSERT INTO organizations (id, display_name) VALUES ($1, $2)', [organizationId, displayName]);
  await tx.execute(
    'INSERT INTO workspaces (id, organization_id, display_name, tenant_handle) VALUES ($1, $2, $3, $4)',
    [owner.workspaceId, organizationId, workspaceName, tenantHandle],
  );
  await tx.execute('INSERT INTO users (id, organization_id, email) VALUES ($1, $2, $3)', [
    owner.userId,
    organizationId,
    email,
  ]);
  return { ...owner, keyId: await insertAdminKey(tx, key, owner, keyDescription) };
}

/**
 * Inserts an admin key for the whole organisation; the first workspace is its default workspace. @returns the id of the
 * key.
 */
export async function insertAdminKey(
  tx: Sql,
  key: string,
  owner: { readonly organizationId: string; readonly workspaceId: string | null; readonly userId: string },
  description: string,
): Promise<string> {
  const id = randomUUID();
  await tx.execute(
    `INSERT INTO api_keys
       (id, organization_id, workspace_ids, default_workspace_id, user_id, hash, short_key, description, permissions)
     VALUES ($1, $2, NULL, $3, $4, $5, $6, $7, $8)`,
    [
      ...[id, owner.organizationId, owner.workspaceId, owner.userId, hashKey(key), toShortKey(key), description],
      [EVERYTHING],
    ],
  );
  return id;
}

/**
 * Derives a handle from a name: lower case, without accents; all other characters become dashes. Clients need a handle
 * for prompts.
 */
export function deriveHandle(displayName: string): string {
  const plain = displayName.normalize('NFKD').replace(/\p{M}/gu, '').toLowerCase();
  const handle = plain
    .replace(/[^a-z0-9_]+/g, '-')
    .replace(/^[-_]+/, '')
    .slice(0, maxHandleLength);
  return handle.replace(/-+$/, '') || 'default';
}

/**
 * Deletes organisations: their keys, users and workspaces become invalid at once, and jobs delete the data
 * (`delete-workspace-data.ts`).
 *
 * Invariant: `deleted_at` of an organisation is never cleared, and no key of a deleted organisation is accepted.
 *
 *   1. One transaction sets `deleted_at` of the organisation and its workspaces, revokes its keys and removes its
 *      users.
 *   2. A job is queued for each workspace.
 *
 * A crash after step 1 leaves `purged_at` of the workspaces empty; the job `requeue-deletions` or a repeated request
 * then queues the jobs for these workspaces.
 */

/**
 * Deletes one organisation in the steps above. Idempotent; a repeated call queues the deletion of workspaces that have
 * not been purged yet.
 *
 * @throws FORBIDDEN, OPERATOR_ONLY, NOT_FOUND; CONFLICT for the organisation of the operator.
 */
export async function deleteOrganization(
  {
    database,
    authenticator,
    enqueueWorkspaceDeletion,
  }: {
    readonly database: Database;
    readonly authenticator: Pick<Authenticator, 'forgetAll'>;
    readonly enqueueWorkspaceDeletion: (workspaceId: string) => Promise<void>;
  },
  caller: Caller,
  organizationId: string,
): Promise<ListedOrganization> {
  const id = organizationId.toLowerCase();
  const deleted = await database.transaction(async (tx) => {
    await requireOperator(tx, caller);
    const [found] = await tx.query('SELECT FROM organizations WHERE id = $1 FOR UPDATE', [id]);
    if (found === undefined) throw runlakeError('NOT_FOUND', { what: 'Organization' });
    if (id === caller.organizationId) {
      throw runlakeError('CONFLICT', {
        reason: 'The first organization belongs to the operator and cannot be deleted.',
      });
    }
    await tx.execute('UPDATE organizations SET deleted_at = coalesce(deleted_at, now()) WHERE id = $1', [id]);
    await tx.execute('UPDATE workspaces SET deleted_at = now() WHERE organization_id = $1 AND deleted_at IS NULL', [
      id,
    ]);
    await tx.execute('UPDATE api_keys SET revoked_at = now() WHERE organization_id = $1 AND revoked_at IS NULL', [id]);
    await tx.execute('UPDATE users SET removed_at = now() WHERE organization_id = $1 AND removed_at IS NULL', [id]);
    const [listed] = await tx.query<ListedOrganization>(
      `SELECT ${listedColumns} FROM organizations o WHERE o.id = $1`,
      [id],
    );
    const due = await tx.query<{ id: string }>(
      'SELECT id FROM workspaces WHERE organization_id = $1 AND purged_at IS NULL ORDER BY created_at, id',
      [id],
    );
    return { listed: listed!, due };
  });
  authenticator.forgetAll();
  for (const workspace of deleted.due) await enqueueWorkspaceDeletion(workspace.id);
  return deleted.listed;
}
