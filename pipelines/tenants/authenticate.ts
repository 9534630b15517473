import { LRUCache } from 'lru-cache';
import { PromiseCache } from '../../infra/cache/promise-cache.ts';
import { fault } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import type { Caller } from './caller.ts';
import { hashKey } from './key-format.ts';
import { effectivePermissions } from './permissions.ts';

/** What a request says about who sends it; empty headers are left out. */
export interface Credentials {
  readonly key: string;
  /** `X-Tenant-Id` */
  readonly workspace?: string | undefined;
  /** `X-Organization-Id` */
  readonly organization?: string | undefined;
}

/**
 * Finds the caller behind an API key.
 *
 * Keys are remembered for {@link rememberedMs}, so that another process sees a revoked key that long at most; in the process
 * that revokes it, {@link Authenticator.forgetKey} ends it at once.
 */
export interface Authenticator {
  /** @throws API_KEY_INVALID, WORKSPACE_FORBIDDEN, ORGANIZATION_FORBIDDEN where the key is of another organisation. */
  authenticate(credentials: Credentials): Promise<Caller>;
  forgetKey(hash: Buffer): void;
  /** After workspaces came or went. */
  forgetAll(): void;
  /** Waits until the last uses are written. */
  close(): Promise<void>;
}

const rememberedMs = 2_000;
const usesNotedEveryMs = 60_000;

const uuid = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** A key as it is remembered: the caller without the workspace of one request. */
interface KnownKey {
  readonly caller: Omit<Caller, 'workspaceId'>;
  readonly liveWorkspaceIds: ReadonlySet<string>;
  readonly defaultWorkspaceId: string | undefined;
}

export function createAuthenticator({ database, logger }: { database: Database; logger: Logger }): Authenticator {
  const usesNotedAtMs = new LRUCache<string, number>({ max: 10_000 });
  const writes = new Set<Promise<void>>();
  const keys = new PromiseCache<KnownKey>({ max: 10_000, ttlMs: rememberedMs });

  function noteUse(keyId: string): void {
    const nowMs = Date.now();
    if (nowMs - (usesNotedAtMs.get(keyId) ?? 0) < usesNotedEveryMs) return;
    usesNotedAtMs.set(keyId, nowMs);
    const write = database
      .execute(
        `UPDATE api_keys SET last_used_at = now()
         WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < now() - interval '1 minute')`,
        [keyId],
      )
      .then(
        () => undefined,
        (err) => logger.warn({ err }, 'the last use of an API key was not noted'),
      )
      .finally(() => writes.delete(write));
    writes.add(write);
  }

  return {
    async authenticate({ key, workspace, organization }) {
      const hash = hashKey(key);
      const name = hash.toString('hex');
      let known = await keys.get(name, () => readKey(database, hash));
      if (
        known &&
        workspace &&
        uuid.test(workspace.toLowerCase()) &&
        !known.liveWorkspaceIds.has(workspace.toLowerCase())
      ) {
        // Another process may have made it a moment ago.
        keys.forget(name);
        known = await keys.get(name, () => readKey(database, hash));
      }
      const expiresAt = known?.caller.expiresAt;
      if (known === undefined || (expiresAt && expiresAt.getTime() <= Date.now())) throw fault('API_KEY_INVALID');
      if (organization && organization.toLowerCase() !== known.caller.organizationId) {
        throw fault('ORGANIZATION_FORBIDDEN');
      }
      const caller = { ...known.caller, workspaceId: chooseWorkspace(known, workspace?.toLowerCase()) };
      noteUse(caller.keyId);
      return caller;
    },
    forgetKey: (hash) => keys.forget(hash.toString('hex')),
    forgetAll: () => keys.clear(),
    close: async () => void (await Promise.all(writes)),
  };
}

/** The workspace that the header names, or else the key's default, or else its only one. */
function chooseWorkspace(
  { caller, liveWorkspaceIds, defaultWorkspaceId }: KnownKey,
  named?: string,
): string | undefined {
  if (named !== undefined) {
    if (liveWorkspaceIds.has(named)) return named;
    throw fault('WORKSPACE_FORBIDDEN', { workspace: uuid.test(named) ? named : 'that X-Tenant-Id names' });
  }
  if (defaultWorkspaceId !== undefined && liveWorkspaceIds.has(defaultWorkspaceId)) return defaultWorkspaceId;
  if (caller.organizationWide) return undefined;
  const [only, ...others] = liveWorkspaceIds;
  if (only === undefined) throw fault('WORKSPACE_FORBIDDEN', { workspace: 'that it was made for: it was deleted' });
  return others.length === 0 ? only : undefined;
}

interface KeyRow {
  id: string;
  organization_id: string;
  organization_wide: boolean;
  default_workspace_id: string | null;
  user_id: string;
  email: string;
  permissions: string[];
  read_only: boolean;
  expires_at: string | null;
  workspaces: ReadonlyArray<{ id: string; live: boolean }>;
}

async function readKey(database: Database, hash: Buffer): Promise<KnownKey | undefined> {
  const [row] = await database.query<KeyRow>(
    `SELECT k.id, k.organization_id, k.workspace_ids IS NULL AS organization_wide, k.default_workspace_id, k.user_id, u.email,
       k.permissions, k.read_only, k.expires_at,
       (SELECT coalesce(json_agg(json_build_object('id', w.id, 'live', w.deleted_at IS NULL)), '[]')
        FROM workspaces w
        WHERE w.organization_id = k.organization_id AND (k.workspace_ids IS NULL OR w.id = ANY (k.workspace_ids))
       ) AS workspaces
     FROM api_keys k JOIN users u ON u.id = k.user_id AND u.removed_at IS NULL
       JOIN organizations o ON o.id = k.organization_id AND o.deleted_at IS NULL
     WHERE k.hash = $1 AND k.revoked_at IS NULL`,
    [hash],
    { name: 'authenticate' },
  );
  if (row === undefined) return undefined;
  const idsOf = (workspaces: KeyRow['workspaces']) => new Set(workspaces.map(({ id }) => id));
  return {
    caller: {
      organizationId: row.organization_id,
      keyId: row.id,
      userId: row.user_id,
      userEmail: row.email,
      permissions: effectivePermissions(row.permissions, row.read_only, row.organization_wide),
      organizationWide: row.organization_wide,
      readableWorkspaceIds: idsOf(row.workspaces),
      readOnly: row.read_only,
      storedPermissions: row.permissions,
      expiresAt: row.expires_at === null ? undefined : new Date(row.expires_at),
    },
    liveWorkspaceIds: idsOf(row.workspaces.filter(({ live }) => live)),
    defaultWorkspaceId: row.default_workspace_id ?? undefined,
  };
}
