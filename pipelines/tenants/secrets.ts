/** Secrets of a workspace: encrypted, and never returned. */
import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { createSealer, type Sealer } from '../../infra/sealing/sealer.ts';
import { enforceLimit } from './enforce-limit.ts';

export function createSecretSealer({ formerSecretKeys }: Pick<Config, 'formerSecretKeys'>, secretKey: string): Sealer {
  return createSealer({ secretKey, formerSecretKeys, purpose: 'secrets', what: 'The secrets' });
}

interface SecretDeps {
  readonly database: Database;
  readonly secretSealer: Sealer;
}

const identifyRow = (workspaceId: string, key: string) => `${workspaceId} ${key}`;

/** The column with the sealed values, for {@link resealColumns}. */
export const sealedSecretColumn = {
  table: 'workspace_secrets',
  column: 'sealed_value',
  keyColumns: ['workspace_id', 'key'],
  identify: identifyRow,
};

const secretLimit = {
  max: 200,
  countSql: 'SELECT count(*) AS count FROM workspace_secrets WHERE workspace_id = $1',
  what: 'secrets in a workspace',
};

export interface SecretChange {
  readonly key: string;
  /** Value of the secret; null deletes the secret. */
  readonly value: string | null;
}

/** Lists the keys of the secrets of a workspace, in alphabetical order. */
export async function listSecretKeys(database: Database, workspaceId: string): Promise<string[]> {
  const rows = await database.query<{ key: string }>(
    'SELECT key FROM workspace_secrets WHERE workspace_id = $1 ORDER BY key',
    [workspaceId],
  );
  return rows.map(({ key }) => key);
}

/**
 * Sets and deletes secrets; either all changes are made or none. If a key is repeated, its last value applies.
 *
 * @throws LIMIT_REACHED
 */
export async function changeSecrets(
  { database, secretSealer }: SecretDeps,
  workspaceId: string,
  changes: readonly SecretChange[],
): Promise<void> {
  await database.transaction(async (tx) => {
    // Concurrent changes wait for each other, because they may change the same keys in different orders.
    await tx.query('SELECT FROM workspaces WHERE id = $1 FOR NO KEY UPDATE', [workspaceId]);
    for (const { key, value } of changes) {
      if (value === null) {
        await tx.execute('DELETE FROM workspace_secrets WHERE workspace_id = $1 AND key = $2', [workspaceId, key]);
        continue;
      }
      await tx.execute(
        `INSERT INTO workspace_secrets (workspace_id, key, sealed_value) VALUES ($1, $2, $3)
         ON CONFLICT (workspace_id, key) DO UPDATE SET sealed_value = excluded.sealed_value, updated_at = now()`,
        [workspaceId, key, secretSealer.seal(value, identifyRow(workspaceId, key))],
      );
    }
    await enforceLimit(tx, 'workspace', workspaceId, secretLimit);
  });
}

/** Deletes a secret, if it exists. */
export async function deleteSecret(database: Database, workspaceId: string, key: string): Promise<void> {
  await database.execute('DELETE FROM workspace_secrets WHERE workspace_id = $1 AND key = $2', [workspaceId, key]);
}

/** Checks that a secret exists. @throws NOT_FOUND */
export async function requireSecret(database: Database, workspaceId: string, key: string): Promise<void> {
  const keys = await listSecretKeys(database, workspaceId);
  if (!keys.includes(key)) throw runlakeError('NOT_FOUND', { what: 'Secret' });
}
