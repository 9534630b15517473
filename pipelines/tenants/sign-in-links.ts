import type { Database } from '../../infra/postgres/pool.ts';
import { EVERYTHING } from './permissions.ts';
import { generateToken, hashToken } from './sign-in-session.ts';

/**
 * Links that sign in once, as the holder of an API key. They exist only in the memory of this process: none survives
 * it, and none works on another one.
 */
export class SignInLinks {
  readonly #keyIds = new Map<string, string>();

  /** @returns the token of the link. */
  issue(keyId: string): string {
    const token = generateToken();
    this.#keyIds.set(hashToken(token).toString('hex'), keyId);
    return token;
  }

  /** Returns the id of the API key, once. Returns undefined if the token is unknown or was used. */
  redeem(token: string): string | undefined {
    const name = hashToken(token).toString('hex');
    const keyId = this.#keyIds.get(name);
    this.#keyIds.delete(name);
    return keyId;
  }
}

/**
 * Returns the id of the oldest admin key of the first organisation, which is the operator's: a key for the whole
 * organisation with all permissions. Returns undefined if there is none.
 */
export async function findOperatorKey(database: Database): Promise<string | undefined> {
  const [key] = await database.query<{ id: string }>(
    `SELECT k.id FROM api_keys k JOIN users u ON u.id = k.user_id AND u.removed_at IS NULL
     WHERE k.organization_id = (SELECT id FROM organizations ORDER BY created_at, id LIMIT 1)
       AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now()) AND k.workspace_ids IS NULL
       AND NOT k.read_only AND $1 = ANY (k.permissions)
     ORDER BY k.created_at, k.id LIMIT 1`,
    [EVERYTHING],
  );
  return key?.id;
}
