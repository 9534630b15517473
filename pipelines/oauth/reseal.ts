import { resealRows, type SealedRow } from '../../infra/sealing/sealer.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import type { OAuthDeps } from './oauth-deps.ts';
import { identifySecret } from './provider.ts';
import { identifyToken } from './token.ts';

/** Columns with secrets. Code verifiers are left out, because they are used within minutes. */
const sealedColumns = [
  ['oauth_providers', 'sealed_client_secret', identifySecret],
  ['oauth_tokens', 'sealed_access_token', (id: string) => identifyToken(id, 'access')],
  ['oauth_tokens', 'sealed_refresh_token', (id: string) => identifyToken(id, 'refresh')],
] as const;

const pageRows = 1_000;

/**
 * Encrypts the client secrets and tokens of all organisations again that were encrypted with a former key; see
 * {@link resealRows}.
 *
 * @returns the number of these secrets. @throws errors of the database.
 */
export async function resealOAuthSecrets(
  { database, secretSealer: sealer }: Pick<OAuthDeps, 'database' | 'secretSealer'>,
  logger: Logger,
): Promise<number> {
  let resealed = 0;
  for (const [table, column, identify] of sealedColumns) {
    // A concurrent request may have replaced the secret meanwhile.
    const store = ({ id, sealed }: SealedRow & { readonly id: string }, text: string) =>
      database.execute(`UPDATE ${table} SET ${column} = $3 WHERE id = $1 AND ${column} = $2`, [id, sealed, text]);
    for (let after = '00000000-0000-0000-0000-000000000000'; ; ) {
      const rows = await database.query<{ readonly id: string; readonly sealed: string }>(
        `SELECT id, ${column} AS sealed FROM ${table} WHERE id > $1 AND ${column} IS NOT NULL ORDER BY id LIMIT ${pageRows}`,
        [after],
      );
      const identified = rows.map((row) => ({ ...row, row: identify(row.id) }));
      resealed += await resealRows(identified, store, { sealer, logger });
      const last = rows.at(-1);
      if (last === undefined || rows.length < pageRows) break;
      after = last.id;
    }
  }
  return resealed;
}
