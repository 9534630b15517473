import { fault, isRunlakeError } from '../errors/runlake-error.ts';
import type { Store } from './load.ts';

/**
 * What a migration failed with, as MIGRATION_FAILED with the words of the server, which here are about our own SQL and not
 * about anybody's data. An error that is transient, or comes from elsewhere, stays what it is.
 */
export function migrationFailure(store: Store, name: string, error: unknown): unknown {
  if (!isRunlakeError(error) || error.retryable) return error;
  const reason = error.cause instanceof Error ? error.cause.message : error.message;
  return fault('MIGRATION_FAILED', { store, name, reason }, { cause: error });
}
