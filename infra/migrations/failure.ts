import { fault, isRunlakeError } from '../errors/runlake-error.ts';
import type { Store } from './load.ts';

/**
 * What a migration failed with, as MIGRATION_FAILED with the words of the server, which here are about our own SQL and not
 * about anybody's data. Any other error stays what it is.
 */
export function migrationFailure(store: Store, name: string, error: unknown): unknown {
  if (!isRunlakeError(error)) return error;
  if (error.code !== 'WAREHOUSE_QUERY_FAILED' && error.code !== 'DATABASE_QUERY_FAILED') return error;
  const reason = error.cause instanceof Error ? error.cause.message : error.message;
  return fault('MIGRATION_FAILED', { store, name, reason }, { cause: error });
}
