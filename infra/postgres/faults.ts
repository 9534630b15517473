import { fault, type RunlakeError } from '../errors/runlake-error.ts';

/**
 * SQLSTATE classes (two characters) and codes that pass by themselves.
 * Source: PostgreSQL documentation, appendix "PostgreSQL Error Codes".
 */
const transientStates = [
  '08', // connection exceptions
  '53', // insufficient resources: too many connections, disk full, out of memory
  '57', // operator intervention: shutting down, starting, query cancelled by its timeout
  '25006', // read-only transaction: a standby before it is promoted
  '40001', // serialization failure
  '40P01', // deadlock
  '55P03', // lock not available
];

/** Raised by triggers of `agents`. */
const closedDeploymentState = 'RL001';

/** NUL in a text or, escaped, in `jsonb`. No statement of Runlake has one: it came with a value. */
const unstorableStates = ['22021', '22P05'];

/** Login, database and rights. */
const accessStates = ['28', '3D000', '42501'];

/**
 * The catalogue's error for whatever a statement failed with. The server's text becomes the cause only.
 * Anything without a SQLSTATE comes from the connection (refused, reset, timed out), save programming errors, which come
 * back as they are.
 */
export function databaseFault(raw: unknown): RunlakeError | TypeError | RangeError | SyntaxError {
  if (raw instanceof TypeError || raw instanceof RangeError || raw instanceof SyntaxError) return raw;
  const state = sqlStateOf(raw);
  if (state === undefined || transientStates.some((prefix) => state.startsWith(prefix))) {
    return fault('DATABASE_UNAVAILABLE', {}, { cause: raw, retryAfterSeconds: 1 });
  }
  if (state === closedDeploymentState) return fault('DEPLOYMENT_DELETED', {}, { cause: raw });
  if (unstorableStates.includes(state)) return fault('TEXT_NOT_STORABLE', {}, { cause: raw });
  if (accessStates.some((prefix) => state.startsWith(prefix))) {
    return fault('ACCESS_DENIED_BY_STORE', { store: 'Postgres', reason: `SQLSTATE ${state}` }, { cause: raw });
  }
  return fault('DATABASE_QUERY_FAILED', {}, { cause: raw });
}

/** The unique constraint or index that an error of the catalogue is about; undefined for every other error. */
export function violatedConstraint(error: unknown): string | undefined {
  const cause = error instanceof Error ? error.cause : undefined;
  if (sqlStateOf(cause) !== '23505') return undefined;
  return String((cause as { constraint?: unknown }).constraint);
}

/** The SQLSTATE of an error, be it `pg`'s own or one of the catalogue around it. */
export function sqlStateOf(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  if ('severity' in error && 'code' in error && typeof error.code === 'string') return error.code;
  return sqlStateOf(error.cause);
}

/** Whether the connection on which this happened may be used again: only when Postgres itself answered and goes on. */
export function leavesConnectionUsable(raw: unknown): boolean {
  const state = sqlStateOf(raw);
  return state !== undefined && !state.startsWith('08') && (!state.startsWith('57') || state === '57014');
}
