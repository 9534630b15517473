import type { Logger } from '../telemetry/logger.ts';
import type { Sealer } from './sealer.ts';

export interface SealedRow {
  /** Identifies the row, as in {@link Sealer}. */
  readonly row: string;
  readonly sealed: string;
}

/**
 * Encrypts secrets again that were encrypted with a former key, so that the former key can be retired. Secrets that
 * cannot be decrypted stay unchanged, and a warning is logged.
 *
 * @param store replaces the sealed text of a row unless it has changed; returns the number of rows that it changed.
 * @returns the number of secrets that were encrypted again.
 */
export async function resealRows<Row extends SealedRow>(
  rows: readonly Row[],
  store: (row: Row, sealed: string) => Promise<number>,
  { sealer, logger }: { readonly sealer: Sealer; readonly logger: Logger },
): Promise<number> {
  let resealed = 0;
  for (const each of rows) {
    try {
      const { text, isUnderFormerKey } = sealer.open(each.sealed, each.row);
      if (isUnderFormerKey) resealed += await store(each, sealer.seal(text, each.row));
    } catch (err) {
      logger.warn({ err, row: each.row }, 'cannot seal a secret again');
    }
  }
  return resealed;
}
