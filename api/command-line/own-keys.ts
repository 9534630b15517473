/** The API keys that a command creates for itself. */
import type { Database } from '../../infra/postgres/database.ts';
import type { Authenticator } from '../../pipelines/tenants/authenticate.ts';
import type { Caller } from '../../pipelines/tenants/caller.ts';
import { createKey, revokeKey } from '../../pipelines/tenants/keys.ts';

interface KeyDeps {
  readonly database: Database;
  readonly authenticator: Authenticator;
}

interface OwnKeys {
  /** Returns a key that stays valid for at least a quarter of its life. Replaces and revokes the previous one if needed. */
  getValid(): Promise<string>;
  /** Revokes the current key. Never rejects. */
  close(): Promise<void>;
}

/** Creates the keys of one command, one after another. @throws errors of the database */
export async function openOwnKeys(deps: KeyDeps, operator: Caller, lifeMs: number): Promise<OwnKeys> {
  const limits = { maxApiKeys: Number.POSITIVE_INFINITY, maxMembers: Number.POSITIVE_INFINITY };
  const create = async () => {
    const nowMs = Date.now();
    const expiresAt = new Date(nowMs + lifeMs).toISOString();
    const newKey = { description: 'Created by a command', readOnly: false, organizationWide: true, expiresAt };
    const { id, key } = await createKey(deps.database, operator, newKey, limits);
    return { id, key, expiresAt, renewAtMs: nowMs + lifeMs * 0.75 };
  };
  // The command has its result, or an error that its user must see.
  const revoke = ({ id, expiresAt }: { readonly id: string; readonly expiresAt: string }) =>
    revokeKey(deps, operator, id, null).catch((error: Error) =>
      console.error(`The key ${id} of this command, which expires at ${expiresAt}, was not revoked: ${error.message}`),
    );
  let current = await create();
  let renewal: Promise<void> | undefined;
  const renew = async () => {
    const previous = current;
    current = await create();
    await revoke(previous);
  };
  return {
    async getValid() {
      if (Date.now() >= current.renewAtMs) {
        renewal ??= renew().finally(() => {
          renewal = undefined;
        });
      }
      await renewal;
      return current.key;
    },
    close: async () => void (await revoke(current)),
  };
}
