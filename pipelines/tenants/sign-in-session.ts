/**
 * Sessions of the web application. A session stands for one API key and never stores it: each request has the
 * permissions that the key has at that moment, and ends with the key, its user or its organisation.
 *
 * Invariant: at any time a browser holds a value of the cookie that is valid, although responses may be lost.
 *   1. `rotateToken` adds a value, up to {@link maxTokensPerSession}, and returns it; the earlier values stay valid.
 *   2. When the new value is first used, the browser has it: the others then expire after {@link overlapSeconds}. Two
 *      requests at a time may have got two new values, so a value that is used for the first time no longer expires.
 */
import { createHash, randomBytes, randomUUID } from 'node:crypto';
import type { Sql } from '../../infra/postgres/database.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import type { Caller, SignInSession } from './caller.ts';

export const sessionLifetimeSeconds = 7 * 86_400;
const idleSeconds = 12 * 3_600;
/** Age from which a value of the cookie is replaced. */
const maxTokenAgeSeconds = 900;
/** How long earlier values stay valid, because other requests of the browser may still carry them. */
const overlapSeconds = 60;
/** Maximum number of sessions of a key. Beyond it, the oldest session ends. */
const maxSessionsPerKey = 100;
/** Maximum number of values of a session: a client that ignores new ones would get another at each request. */
const maxTokensPerSession = 100;

/** Generates the value of a cookie, of a CSRF token or of a link: 256 random bits as 43 characters. */
export function generateToken(): string {
  return randomBytes(32).toString('base64url');
}

export function hashToken(token: string): Buffer {
  return createHash('sha256').update(token).digest();
}

/** Starts a session of a key. @returns the value of the cookie. */
export async function startSession(sql: Database, keyId: string): Promise<string> {
  const token = generateToken();
  await sql.execute('DELETE FROM sign_in_sessions WHERE expires_at <= now()');
  await sql.execute(
    `WITH surplus AS (
       DELETE FROM sign_in_sessions WHERE id IN (
         SELECT id FROM sign_in_sessions WHERE key_id = $2 ORDER BY last_used_at DESC, id OFFSET ${maxSessionsPerKey - 1})
     ), started AS (
       INSERT INTO sign_in_sessions (id, key_id, csrf_token, expires_at)
       VALUES ($1, $2, $3, now() + make_interval(secs => ${sessionLifetimeSeconds})) RETURNING id
     )
     INSERT INTO sign_in_tokens (hash, session_id, used_at) SELECT $4, id, now() FROM started`,
    [randomUUID(), keyId, generateToken(), hashToken(token)],
  );
  return token;
}

interface SessionRow {
  id: string;
  csrf_token: string;
  key_id: string;
  key_hash: Buffer;
  age: number;
  expires_at: string;
  is_new: boolean;
}

/** Reads the session of a cookie. Returns undefined if it has ended or its key is revoked. Records the use. */
export async function readSession(database: Database, hash: Buffer): Promise<SignInSession | undefined> {
  const [row] = await database.query<SessionRow>(
    `SELECT s.id, s.csrf_token, s.key_id, k.hash AS key_hash, s.expires_at, t.used_at IS NULL AS is_new,
       extract(epoch FROM now() - t.created_at)::float8 AS age
     FROM sign_in_tokens t JOIN sign_in_sessions s ON s.id = t.session_id
       JOIN api_keys k ON k.id = s.key_id AND k.revoked_at IS NULL
     WHERE t.hash = $1 AND (t.valid_until IS NULL OR t.valid_until > now()) AND s.expires_at > now()
       AND s.last_used_at > now() - make_interval(secs => ${idleSeconds})`,
    [hash],
    { name: 'read-session' },
  );
  if (row === undefined) return undefined;
  await database.execute(
    `UPDATE sign_in_sessions SET last_used_at = now()
     WHERE id = $1 AND last_used_at < now() - interval '1 minute'`,
    [row.id],
  );
  if (row.is_new) await confirmToken(database, hash);
  return toSession(row);
}

/** Reads a session whose cookie another process has verified. The use is recorded there. */
export async function readSessionById(database: Database, id: string): Promise<SignInSession | undefined> {
  const [row] = await database.query<SessionRow>(
    `SELECT s.id, s.csrf_token, s.key_id, k.hash AS key_hash, s.expires_at, false AS is_new, 0::float8 AS age
     FROM sign_in_sessions s JOIN api_keys k ON k.id = s.key_id AND k.revoked_at IS NULL
     WHERE s.id = $1 AND s.expires_at > now() AND s.last_used_at > now() - make_interval(secs => ${idleSeconds})`,
    [id],
    { name: 'read-session-by-id' },
  );
  return row && toSession(row);
}

function toSession(row: SessionRow): SignInSession {
  return {
    id: row.id,
    csrfToken: row.csrf_token,
    keyId: row.key_id,
    keyHash: row.key_hash,
    tokenAgeSeconds: row.age,
    expiresAt: new Date(row.expires_at),
  };
}

/** Step 2: the browser has the value, so the other values of the session are no longer needed. */
async function confirmToken(database: Database, hash: Buffer): Promise<void> {
  await database.execute(
    `WITH confirmed AS (
       UPDATE sign_in_tokens SET used_at = now(), valid_until = NULL WHERE hash = $1 AND used_at IS NULL
       RETURNING session_id
     ), gone AS (
       DELETE FROM sign_in_tokens t USING confirmed c WHERE t.session_id = c.session_id AND t.valid_until < now()
     )
     UPDATE sign_in_tokens t SET valid_until = now() + make_interval(secs => ${overlapSeconds})
     FROM confirmed c WHERE t.session_id = c.session_id AND t.hash <> $1 AND t.valid_until IS NULL`,
    [hash],
  );
}

/**
 * Step 1. Returns a new value of the cookie if the value of the request is old and the session has fewer than
 * {@link maxTokensPerSession}.
 */
export async function rotateToken(database: Database, session: SignInSession): Promise<string | undefined> {
  if (session.tokenAgeSeconds < maxTokenAgeSeconds) return undefined;
  const token = generateToken();
  const added = await database.execute(
    `INSERT INTO sign_in_tokens (hash, session_id) SELECT $1, $2
     WHERE (SELECT count(*) FROM sign_in_tokens WHERE session_id = $2) < ${maxTokensPerSession}`,
    [hashToken(token), session.id],
  );
  return added > 0 ? token : undefined;
}

/** Ends a session. Other processes accept its cookie for as long as they cache it. */
export async function endSession(sql: Sql, session: SignInSession): Promise<void> {
  await sql.execute('DELETE FROM sign_in_sessions WHERE id = $1', [session.id]);
}

/** Names that the application shows for a session. */
export interface SessionNames {
  /** The workspace of requests without `X-Tenant-Id`, else the first workspace of the key. Null if there is none. */
  readonly workspace: { readonly id: string; readonly display_name: string } | null;
  readonly organization: { readonly id: string; readonly display_name: string };
  readonly user: { readonly id: string; readonly email: string; readonly full_name: string | null };
}

export async function readSessionNames(database: Database, caller: Caller): Promise<SessionNames> {
  const { organizationId, userId, workspaceId, readableWorkspaceIds } = caller;
  const [row] = await database.query<SessionNames>(
    `SELECT json_build_object('id', o.id, 'display_name', o.display_name) AS organization,
       json_build_object('id', u.id, 'email', u.email, 'full_name', u.full_name) AS "user",
       (SELECT json_build_object('id', w.id, 'display_name', w.display_name) FROM workspaces w
        WHERE w.organization_id = o.id AND w.deleted_at IS NULL AND w.id = ANY ($4)
        ORDER BY w.id IS DISTINCT FROM $3::uuid, w.created_at, w.id LIMIT 1) AS workspace
     FROM organizations o JOIN users u ON u.organization_id = o.id WHERE o.id = $1 AND u.id = $2`,
    [organizationId, userId, workspaceId ?? null, [...readableWorkspaceIds]],
  );
  return row!;
}

/** Returns the time at which the session ends if it is not used again. */
export function findSessionEnd({ expiresAt }: SignInSession): string {
  return new Date(Math.min(expiresAt.getTime(), Date.now() + idleSeconds * 1_000)).toISOString();
}
