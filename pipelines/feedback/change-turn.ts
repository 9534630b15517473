/**
 * Runs the changes of one feedback entry one after the other, in all API processes.
 *
 * Invariant: no other change of an entry is published between the read of its last event and the event that is based on
 * it. Exceptions: the first event of an entry, and events in bodies of several runs, which take no turn.
 *
 *   1. In this process, a change waits until the previous change of the entry has ended.
 *   2. If other processes accept changes too, it takes the lease of the entry in Postgres, or waits until that ends.
 *   3. It publishes its event, unless its lease may end before the log has accepted it.
 *   4. It ends its lease, unless publishing fails: the log may still append the event. The lease then ends by itself, as that
 *      of a process that died.
 */
import { randomUUID } from 'node:crypto';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { EventLog } from '../../infra/event-log/event-log.ts';
import { runExclusiveForAll } from '../../infra/fairness/run-exclusive.ts';
import type { Database } from '../../infra/postgres/database.ts';
import { poll } from '../../infra/timeouts/poll.ts';

export interface FeedbackId {
  readonly tenantId: string;
  readonly id: string;
}

/** Maximum time that a change waits for its turn. Each change waits until the one before is stored. */
const maxTurnMs = 10_000;
const leaseMs = 60_000;
/** Maximum age of a lease at which its change is published. The rest of the lease is longer than publishing takes. */
const maxLeaseAgeMs = 30_000;
const pollIntervalMs = 50;

const createOverloadedError = () =>
  runlakeError('OVERLOADED', { what: 'changes of this feedback' }, { retryAfterSeconds: maxTurnMs / 1_000 });

interface TurnDeps {
  readonly database: Database;
  readonly log: Pick<EventLog, 'isExclusive'>;
}

/**
 * Throws OVERLOADED if the turn may end before the change is published. A change must call this function right before it
 * publishes, and may call it earlier.
 */
type RequireTurn = (nextStep: 'publish' | 'other') => void;

/** Performs all steps. @throws OVERLOADED if there are too many changes of the entry */
export function changeInTurn<Result>(
  deps: TurnDeps,
  entry: FeedbackId,
  change: (requireTurn: RequireTurn) => Promise<Result>,
): Promise<Result> {
  return waitForTurn(entry, () => withLease(deps, entry, change));
}

/** Performs step 1, then `work`. @throws OVERLOADED if the previous changes take too long */
export function waitForTurn<Result>({ tenantId, id }: FeedbackId, work: () => Promise<Result>): Promise<Result> {
  const limit = { maxWaitMs: maxTurnMs, createError: createOverloadedError };
  return runExclusiveForAll([`${tenantId}:${id}`], limit, work);
}

/** Performs steps 2 to 4. @throws OVERLOADED if other processes change the entry for too long */
export async function withLease<Result>(
  { database, log }: TurnDeps,
  { tenantId, id }: FeedbackId,
  change: (requireTurn: RequireTurn) => Promise<Result>,
): Promise<Result> {
  if (log.isExclusive) return change(() => undefined);
  const lease = randomUUID();
  let takenAtMs = 0;
  const take = () => {
    takenAtMs = performance.now();
    return database.execute(
      `INSERT INTO feedback_changes (workspace_id, feedback_id, lease, lease_until)
       VALUES ($1, $2, $3, now() + $4 * interval '1 millisecond')
       ON CONFLICT (workspace_id, feedback_id) DO UPDATE SET lease = excluded.lease, lease_until = excluded.lease_until
       WHERE feedback_changes.lease_until <= now()`,
      [tenantId, id, lease, leaseMs],
    );
  };
  const taken = await poll(take, { intervalMs: pollIntervalMs, timeoutMs: maxTurnMs });
  if (taken === 0) throw createOverloadedError();
  let mayBePublished = false;
  try {
    const result = await change((nextStep) => {
      if (performance.now() - takenAtMs > maxLeaseAgeMs) throw createOverloadedError();
      if (nextStep === 'publish') mayBePublished = true;
    });
    mayBePublished = false;
    return result;
  } finally {
    const endSql = 'DELETE FROM feedback_changes WHERE workspace_id = $1 AND feedback_id = $2 AND lease = $3';
    // Without this statement, the lease ends by itself.
    if (!mayBePublished) await database.execute(endSql, [tenantId, id, lease]).catch(() => undefined);
  }
}
