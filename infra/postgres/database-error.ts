import { isRunlakeError, type RunlakeError, runlakeError } from '../errors/runlake-error.ts';
import { retryTransient } from '../timeouts/backoff.ts';

/** SQLSTATE of a write to a standby, which may be an earlier primary, or one that is not promoted yet. */
const readOnlyState = '25006';

/**
 * SQLSTATE classes (two characters) and codes of temporary conditions, after which a retry may succeed.
 * Source: PostgreSQL documentation, appendix "PostgreSQL Error Codes".
 */
const transientStates = [
  '08', // connection exceptions
  '53', // insufficient resources: too many connections, disk full, out of memory
  '57', // operator intervention: shutting down, starting, query cancelled by its timeout
  readOnlyState,
  '40001', // serialization failure
  '40P01', // deadlock
  '55P03', // lock not available
];

/** SQLSTATE that triggers of the schema `agents` raise. */
const closedDeploymentState = 'RL001';

/**
 * SQLSTATEs for a NUL character in text, or an escaped one in `jsonb`. Runlake's statements contain none, so the
 * character is in a value of the caller.
 */
const unstorableStates = ['22021', '22P05'];

/** SQLSTATE classes and codes for failed authentication, an unknown database and missing permissions. */
const accessStates = ['28', '3D000', '42501'];

/**
 * Converts the error of a statement to a RunlakeError. The server's message goes only into the cause. Errors without a
 * SQLSTATE are connection errors (refused, reset, timed out), except programming errors, which are returned unchanged.
 */
export function toDatabaseError(raw: unknown): RunlakeError | TypeError | RangeError | SyntaxError {
  if (raw instanceof TypeError || raw instanceof RangeError || raw instanceof SyntaxError) return raw;
  const state = getSqlState(raw);
  if (state === undefined || transientStates.some((prefix) => state.startsWith(prefix))) {
    return runlakeError('DATABASE_UNAVAILABLE', {}, { cause: raw, retryAfterSeconds: 1 });
  }
  if (state === closedDeploymentState) return runlakeError('DEPLOYMENT_DELETED', {}, { cause: raw });
  if (unstorableStates.includes(state)) return runlakeError('TEXT_NOT_STORABLE', {}, { cause: raw });
  if (accessStates.some((prefix) => state.startsWith(prefix))) {
    return runlakeError('ACCESS_DENIED_BY_STORE', { store: 'Postgres', reason: `SQLSTATE ${state}` }, { cause: raw });
  }
  return runlakeError('DATABASE_QUERY_FAILED', {}, { cause: raw });
}

const minRetryPauseMs = 50;

/**
 * Executes a statement, which must be idempotent, with retries and backoff on transient errors: a short outage of
 * Postgres, such as a restart, only delays the caller.
 *
 * @throws the errors of {@link toDatabaseError}
 */
export function retryWhileUnavailable<Result>(execute: () => Promise<Result>): Promise<Result> {
  return retryTransient(async () => {
    try {
      return await execute();
    } catch (raw) {
      throw toDatabaseError(raw);
    }
  }, minRetryPauseMs);
}

/** Errors of statements that were sent and whose answer did not arrive. */
const unansweredErrors = new WeakSet<Error>();

/** Converts the error of a statement that was sent to Postgres, like {@link toDatabaseError}. */
export function toStatementError(raw: unknown): ReturnType<typeof toDatabaseError> {
  const error = toDatabaseError(raw);
  if (!leavesConnectionUsable(raw)) unansweredErrors.add(error);
  return error;
}

/**
 * Creates a row whose id the caller has chosen. If the connection breaks during the commit, the outcome is unknown, and a
 * client that repeated the request would get a second row. This function then looks for the row. If it does not exist, it
 * repeats `create`, because Postgres may still execute the first statement: the second one waits for it and fails if the
 * row exists.
 *
 * @param search returns undefined or throws NOT_FOUND if the row does not exist, and has not been created and deleted meanwhile.
 * @throws the errors of `create` and `search`
 */
export async function createOrFind<Result>(
  create: () => Promise<Result>,
  search: () => Promise<Result | undefined>,
): Promise<Result> {
  try {
    return await create();
  } catch (error) {
    if (!(error instanceof Error && unansweredErrors.has(error))) throw error;
    const find = () =>
      search().catch((failure: unknown) => {
        if (isRunlakeError(failure) && failure.code === 'NOT_FOUND') return undefined;
        throw failure;
      });
    const outcome = await retryWhileUnavailable(async () => {
      const existing = await find();
      if (existing !== undefined) return { result: existing };
      try {
        return { result: (await create()) ?? ((await find()) as Result) };
      } catch (failure) {
        if (isRunlakeError(failure) && failure.code === 'DATABASE_UNAVAILABLE') throw failure;
        const found = await find();
        return found === undefined ? { failure } : { result: found };
      }
    });
    if ('failure' in outcome) throw outcome.failure;
    return outcome.result;
  }
}

/** Returns true if Postgres refused the values or the form of a statement, so that it would refuse it again. */
export function isRefusedStatement(error: unknown): boolean {
  return isRunlakeError(error) && (error.code === 'TEXT_NOT_STORABLE' || error.code === 'DATABASE_QUERY_FAILED');
}

/** Returns the unique constraint or index that was violated; undefined for other errors. */
export function getViolatedConstraint(error: unknown): string | undefined {
  const cause = error instanceof Error ? error.cause : undefined;
  if (getSqlState(cause) !== '23505') return undefined;
  return String((cause as { constraint?: unknown }).constraint);
}

/** Returns the SQLSTATE of an error of `pg`, or of a RunlakeError that has one as its cause. */
export function getSqlState(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  if ('severity' in error && 'code' in error && typeof error.code === 'string') return error.code;
  return getSqlState(error.cause);
}

/**
 * Returns true if the connection can be reused after this error: only if Postgres returned the error, did not end the
 * session, and accepts writes. After a failover, a new connection leads to the new primary.
 */
export function leavesConnectionUsable(raw: unknown): boolean {
  const state = getSqlState(raw);
  if (state === undefined || state === readOnlyState || state.startsWith('08')) return false;
  return !state.startsWith('57') || state === '57014';
}
