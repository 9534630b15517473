import type { Database } from '../../infra/postgres/pool.ts';
import type { Caller } from './caller.ts';
import { EVERYTHING } from './permissions.ts';
import { generateToken, hashToken } from './sign-in-session.ts';

/** The key that a session stands for. */
export type SignInKey = Pick<Caller, 'keyId' | 'organizationId' | 'userEmail'>;

/**
 * One-time sign-in links for the holder of an API key. They exist only in the memory of this process, so they end with
 * it, and other processes do not accept them.
 */
export class SignInLinks {
  readonly #keys = new Map<string, SignInKey>();

  /** @returns the token of the link. */
  issue(key: SignInKey): string {
    const token = generateToken();
    this.#keys.set(hashToken(token).toString('hex'), key);
    return token;
  }

  /** Returns the API key, once. Returns undefined if the token is unknown or was used. */
  redeem(token: string): SignInKey | undefined {
    const name = hashToken(token).toString('hex');
    const key = this.#keys.get(name);
    this.#keys.delete(name);
    return key;
  }
}

/**
 * Returns the oldest admin key of the first organisation, which is the operator's: a key for the whole
 * organisation with all permissions. Returns undefined if there is none.
 */
export async function findOperatorKey(database: Database): Promise<SignInKey | undefined> {
  const [key] = await database.query<SignInKey>(
    `SELECT k.id AS "keyId", k.organization_id AS "organizationId", u.email AS "userEmail" FROM api_keys k JOIN users u ON u.id = k.user_id AND u.removed_at IS NULL
     WHERE k.organization_id = (SELECT id FROM organizations ORDER BY created_at, id LIMIT 1)
       AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now()) AND k.workspace_ids IS NULL
       AND NOT k.read_only AND $1 = ANY (k.permissions)
     ORDER BY k.created_at, k.id LIMIT 1`,
    [EVERYTHING],
  );
  return key;
}
