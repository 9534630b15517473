import type { Logger } from '../../../infra/telemetry/logger.ts';
import type { DestinationDeps } from './destination-deps.ts';

/**
 * Seals credentials that are sealed under a former key again under the current key, so that the former key can be
 * retired. Credentials that cannot be opened stay unchanged and are logged.
 *
 * @returns the number of credentials sealed again.
 */
export async function resealDestinations(
  { database, sealer }: Pick<DestinationDeps, 'database' | 'sealer'>,
  logger: Logger,
): Promise<number> {
  const rows = await database.query<{ id: string; sealed: string }>(
    'SELECT id, sealed_credentials AS sealed FROM bulk_export_destinations WHERE sealed_credentials IS NOT NULL',
  );
  let resealed = 0;
  for (const { id, sealed } of rows) {
    try {
      const { text, isUnderFormerKey } = sealer.open(sealed, id);
      if (!isUnderFormerKey) continue;
      // A concurrent request may have replaced them meanwhile.
      resealed += await database.execute(
        'UPDATE bulk_export_destinations SET sealed_credentials = $2 WHERE id = $1 AND sealed_credentials = $3',
        [id, sealer.seal(text, id), sealed],
      );
    } catch (err) {
      logger.warn({ err, destination: id }, 'cannot seal the credentials of a destination again');
    }
  }
  return resealed;
}
