import { LRUCache } from 'lru-cache';
import { PromiseCache } from '../../infra/cache/promise-cache.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { parseUuid } from '../ingest/run-event/uuid.ts';
import type { Caller, SignInSession } from './caller.ts';
import { hashKey } from './key-format.ts';
import { computeEffectivePermissions } from './permissions.ts';
import { hashToken, readSession, readSessionById } from './sign-in-session.ts';

/** Credentials of a request; empty headers are omitted. A request has a key or a session. */
export interface Credentials {
  readonly key?: string | undefined;
  /** Value of the session cookie. It is used only without a key. */
  readonly session?: string | undefined;
  /** Id of a session whose cookie another process has verified. It is used only without a key and a cookie. */
  readonly sessionId?: string | undefined;
  /** Value of the header `X-Tenant-Id`. */
  readonly workspace?: string | undefined;
  /** Value of the header `X-Organization-Id`. */
  readonly organization?: string | undefined;
}

/**
 * Authenticates requests by API key or by session.
 *
 * Keys and sessions are cached for {@link keyCacheMs}: another process accepts a revoked key for at most that time. In
 * the process that revokes a key, {@link Authenticator.forgetKey} removes it at once.
 */
export interface Authenticator {
  /**
   * Authenticates a request.
   *
   * @throws API_KEY_INVALID or SESSION_INVALID, WORKSPACE_FORBIDDEN, ORGANIZATION_FORBIDDEN if the key belongs to
   *   another organisation.
   */
  authenticate(credentials: Credentials): Promise<Caller>;
  forgetKey(hash: Buffer): void;
  /** Removes a session from the cache. Call this method after the session has ended. */
  forgetSession(session: string): void;
  /** Clears the cache. Call this method after workspaces have been created or deleted. */
  forgetAll(): void;
  /** Waits for pending writes of `last_used_at`. */
  close(): Promise<void>;
}

const keyCacheMs = 2_000;
const minUseWriteIntervalMs = 60_000;

/** A cached key: the caller without the workspace, which depends on the request. */
interface CachedKey {
  readonly caller: Omit<Caller, 'workspaceId'>;
  readonly liveWorkspaceIds: ReadonlySet<string>;
  readonly defaultWorkspaceId: string | undefined;
}

export function createAuthenticator({ database, logger }: { database: Database; logger: Logger }): Authenticator {
  const lastUseWriteMs = new LRUCache<string, number>({ max: 10_000 });
  const writes = new Set<Promise<void>>();
  const keys = new PromiseCache<CachedKey>({ max: 10_000, ttlMs: keyCacheMs });
  const sessions = new PromiseCache<SignInSession>({ max: 10_000, ttlMs: keyCacheMs });

  /** @throws SESSION_INVALID */
  async function findSession({ session: token, sessionId }: Credentials): Promise<SignInSession | undefined> {
    let session: SignInSession | undefined;
    if (token !== undefined) {
      const hash = hashToken(token);
      session = await sessions.get(hash.toString('hex'), () => readSession(database, hash));
    } else if (sessionId !== undefined) {
      session = await sessions.get(sessionId, () => readSessionById(database, sessionId));
    } else return undefined;
    if (session === undefined) throw runlakeError('SESSION_INVALID');
    return session;
  }

  function recordUse(keyId: string): void {
    const nowMs = Date.now();
    if (nowMs - (lastUseWriteMs.get(keyId) ?? 0) < minUseWriteIntervalMs) return;
    lastUseWriteMs.set(keyId, nowMs);
    const write = database
      .execute(
        `UPDATE api_keys SET last_used_at = now()
         WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < now() - interval '1 minute')`,
        [keyId],
      )
      .then(
        () => undefined,
        (err) => logger.warn({ err }, 'cannot record the last use of an API key'),
      )
      .finally(() => writes.delete(write));
    writes.add(write);
  }

  return {
    async authenticate(credentials) {
      const { key, workspace, organization } = credentials;
      const session = key === undefined ? await findSession(credentials) : undefined;
      const hash = session?.keyHash ?? hashKey(key ?? '');
      const name = hash.toString('hex');
      const workspaceId = workspace && parseUuid(workspace);
      let known = await keys.get(name, () => readKey(database, hash));
      if (known && workspaceId && !known.liveWorkspaceIds.has(workspaceId)) {
        // Another process may have created the workspace just now.
        keys.forget(name);
        known = await keys.get(name, () => readKey(database, hash));
      }
      const expiresAt = known?.caller.expiresAt;
      if (known === undefined || (expiresAt && expiresAt.getTime() <= Date.now()))
        throw runlakeError(session ? 'SESSION_INVALID' : 'API_KEY_INVALID');
      if (organization && organization.toLowerCase() !== known.caller.organizationId) {
        throw runlakeError('ORGANIZATION_FORBIDDEN');
      }
      const chosenId = chooseWorkspace(known, workspace && (workspaceId ?? workspace));
      const caller = { ...known.caller, workspaceId: chosenId, session };
      recordUse(caller.keyId);
      return caller;
    },
    forgetKey: (hash) => keys.forget(hash.toString('hex')),
    forgetSession: (token) => sessions.forget(hashToken(token).toString('hex')),
    forgetAll: () => {
      keys.clear();
      sessions.clear();
    },
    close: async () => void (await Promise.all(writes)),
  };
}

/**
 * Chooses the workspace named by the header; otherwise the default workspace of the key; otherwise its only workspace.
 * Returns undefined if the key has several workspaces or is valid for the whole organisation.
 */
function chooseWorkspace(
  { caller, liveWorkspaceIds, defaultWorkspaceId }: CachedKey,
  named?: string,
): string | undefined {
  if (named !== undefined) {
    if (liveWorkspaceIds.has(named)) return named;
    throw runlakeError('WORKSPACE_FORBIDDEN', {
      workspace: parseUuid(named) ?? 'that X-Tenant-Id names',
    });
  }
  if (defaultWorkspaceId !== undefined && liveWorkspaceIds.has(defaultWorkspaceId)) return defaultWorkspaceId;
  if (caller.organizationWide) return undefined;
  const [only, ...others] = liveWorkspaceIds;
  if (only === undefined) throw runlakeError('WORKSPACE_FORBIDDEN', { workspace: 'of this API key' });
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

async function readKey(database: Database, hash: Buffer): Promise<CachedKey | undefined> {
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
  const toIdSet = (workspaces: KeyRow['workspaces']) => new Set(workspaces.map(({ id }) => id));
  return {
    caller: {
      organizationId: row.organization_id,
      keyId: row.id,
      userId: row.user_id,
      userEmail: row.email,
      permissions: computeEffectivePermissions(row.permissions, row.read_only, row.organization_wide),
      organizationWide: row.organization_wide,
      readableWorkspaceIds: toIdSet(row.workspaces),
      readOnly: row.read_only,
      storedPermissions: row.permissions,
      expiresAt: row.expires_at === null ? undefined : new Date(row.expires_at),
    },
    liveWorkspaceIds: toIdSet(row.workspaces.filter(({ live }) => live)),
    defaultWorkspaceId: row.default_workspace_id ?? undefined,
  };
}
