import { isRunlakeError, runlakeError } from '../errors/runlake-error.ts';
import type { Store } from './load.ts';

/**
 * Converts the error of a migration to MIGRATION_FAILED with the server's message, which concerns Runlake's own SQL and
 * no customer data. Returns other errors unchanged.
 */
export function migrationFailure(store: Store, name: string, error: unknown): unknown {
  if (!isRunlakeError(error)) return error;
  if (error.code !== 'CLICKHOUSE_QUERY_FAILED' && error.code !== 'DATABASE_QUERY_FAILED') return error;
  const reason = error.cause instanceof Error ? error.cause.message : error.message;
  return runlakeError('MIGRATION_FAILED', { store, name, reason }, { cause: error });
}
