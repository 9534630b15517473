/**
 * Searches: statements that read every row of a large table to find those that match the conditions of a client.
 *
 * Invariant: the searches of one organisation with a key hold at most two connections of this process, those of all
 * clients without a key in its shares also at most two, and all searches together at most six. Organisations may hold
 * fifteen, so connections stay free for all other work.
 *
 *   1. A search waits for a slot, in the order of arrival.
 *   2. It takes a connection and runs until its time limit. Then Postgres ends it, and the slot is free again.
 */
import { runlakeError } from '../errors/runlake-error.ts';
import { FairSlots } from '../fairness/fair-slots.ts';
import { getTenantContext } from '../fairness/tenant-context.ts';
import type { Database, Sql } from './database.ts';
import { getSqlState } from './database-error.ts';

const slots = new FairSlots({ name: 'postgres-searches', slots: 2, extraSlots: 4, maxWaiting: 1_000 });

/** As long as a request waits for a connection. */
const maxWaitMs = 30_000;
const timeoutsMs = { withKey: 30_000, withoutKey: 5_000 };
/** SQLSTATE of a statement that Postgres ended, for example at its timeout. */
const cancelledState = '57014';

export interface SearchClient {
  /** Whether the client has no key, as the reader of a share. Default: false. */
  readonly isPublic?: boolean | undefined;
}

/**
 * Runs a search of the current organisation in a transaction. `work` must not run another search.
 *
 * @throws SEARCH_TOO_SLOW if a statement exceeds the time limit; OVERLOADED if too many searches wait, or if this one
 *   waits for too long; errors of `work`.
 */
export async function runSearch<Result>(
  database: Database,
  { isPublic = false }: SearchClient,
  work: (sql: Sql) => Promise<Result>,
): Promise<Result> {
  const { organizationId = '', disconnected: signal } = getTenantContext() ?? {};
  const slot = await slots.acquire(`${organizationId}${isPublic ? ' public' : ''}`, { maxWaitMs, signal });
  const timeoutMs = isPublic ? timeoutsMs.withoutKey : timeoutsMs.withKey;
  try {
    return await database.transaction(work, { timeoutMs });
  } catch (error) {
    if (getSqlState(error) !== cancelledState) throw error;
    throw runlakeError('SEARCH_TOO_SLOW', { limitMs: timeoutMs }, { cause: error });
  } finally {
    slot.release();
  }
}
